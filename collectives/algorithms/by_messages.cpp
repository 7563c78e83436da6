#include "collectives/algorithms/by_messages.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace dtrun::collectives {
namespace {

/// Operations of one rank.
class ByMessages {
public:
    ByMessages(Group& group, std::uint32_t rank, std::uint32_t size, const Operation& what)
        : group_(group),
          rank_(rank),
          size_(size),
          what_(what),
          bytes_(what.bytes()),
          in_(static_cast<const std::byte*>(what.in)),
          out_(static_cast<std::byte*>(what.out)) {}

    Result<void> gather() {
        if (rank_ != what_.root) {
            const Send send{what_.root, in_, bytes_};
            return exchange(group_, {&send, 1}, {});
        }
        std::vector<Receive> receives;
        for (std::uint32_t from = 0; from < size_; ++from)
            if (from != rank_) receives.push_back({from, out_ + from * bytes_, bytes_});
        copy_bytes(out_ + rank_ * bytes_, in_, bytes_);
        return exchange(group_, {}, receives);
    }

    Result<void> scatter() {
        if (rank_ != what_.root) {
            const Receive receive{what_.root, out_, bytes_};
            return exchange(group_, {}, {&receive, 1});
        }
        std::vector<Send> sends;
        for (std::uint32_t to = 0; to < size_; ++to)
            if (to != rank_) sends.push_back({to, in_ + to * bytes_, bytes_});
        copy_bytes(out_, in_ + rank_ * bytes_, bytes_);
        return exchange(group_, sends, {});
    }

    /// Exchanges parts with each other rank in turn, so that every link carries each part once.
    Result<void> allgather() {
        const std::vector<std::size_t> parts = parts_of(what_, size_);
        std::vector<std::size_t> offsets(size_);
        std::exclusive_scan(parts.begin(), parts.end(), offsets.begin(), std::size_t{0});
        copy_bytes(out_ + offsets[rank_], in_, parts[rank_]);
        return with_each([&](std::uint32_t to, std::uint32_t from) {
            const Send send{to, in_, parts[rank_]};
            const Receive receive{from, out_ + offsets[from], parts[from]};
            return exchange(group_, {&send, 1}, {&receive, 1});
        });
    }

    Result<void> alltoall() {
        copy_bytes(out_ + rank_ * bytes_, in_ + rank_ * bytes_, bytes_);
        return with_each([&](std::uint32_t to, std::uint32_t from) {
            const Send send{to, in_ + to * bytes_, bytes_};
            const Receive receive{from, out_ + from * bytes_, bytes_};
            return exchange(group_, {&send, 1}, {&receive, 1});
        });
    }

private:
    /// \param step  is given the rank to send to and the one to receive from
    template <class Step>
    Result<void> with_each(const Step& step) {
        for (std::uint32_t distance = 1; distance < size_; ++distance) {
            auto done = step((rank_ + distance) % size_, (rank_ + size_ - distance) % size_);
            if (!done) return done;
        }
        return {};
    }

    Group& group_;
    const std::uint32_t rank_;
    const std::uint32_t size_;
    const Operation& what_;
    const std::size_t bytes_;  ///< of one rank's part
    const std::byte* const in_;
    std::byte* const out_;
};

}  // namespace

Result<void> exchange(Group& group, std::span<const Send> sends,
                      std::span<const Receive> receives) {
    const auto messages = group.start(sends, receives);
    if (!messages) return std::unexpected(messages.error());
    return (*messages)->wait();
}

Result<void> run_by_messages(Group& group, std::uint32_t rank, std::uint32_t size,
                             const Operation& what) {
    ByMessages messages(group, rank, size, what);
    switch (what.kind) {
        case Operation::Kind::gather:
            return messages.gather();
        case Operation::Kind::scatter:
            return messages.scatter();
        case Operation::Kind::allgather:
        case Operation::Kind::allgatherv:
            return messages.allgather();
        case Operation::Kind::alltoall:
            return messages.alltoall();
        default:
            return fail(Errc::not_found, "there is no {} made of messages",
                        row_of(what.kind).words);
    }
}

Result<void> GroupOfOperations::run(const Operation& what) {
    switch (what.kind) {
#define DTRUN_OPERATION(kind, ...) \
    case Operation::Kind::kind:    \
        return kind(what);
#include "collectives/operations.def"
#undef DTRUN_OPERATION
    }
    return by_messages(what);
}

Result<void> GroupOfOperations::check_peers(std::span<const Send> sends,
                                            std::span<const Receive> receives) const {
    const auto is_other = [this](const auto& message) {
        return message.peer < size_ && message.peer != rank_;
    };
    if (std::ranges::all_of(sends, is_other) && std::ranges::all_of(receives, is_other)) return {};
    return fail(Errc::invalid_input, "a message to no other rank of the {}", size_);
}

}  // namespace dtrun::collectives
