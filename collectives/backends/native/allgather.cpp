#include "collectives/backends/native/group.h"
#include "collectives/backends/native/parts.h"
#include "collectives/host/copy.h"

#include <algorithm>

namespace dtrun::collectives::native {
namespace {

/// An allgather between hosts: hosts share their ranks' parts in memory, each rail brings the parts that it carries
/// to all hosts, and there everybody puts them where they belong.
class Allgather {
public:
    /// \param rail  nullptr: this rank is on none
    Allgather(const Topology& topology, HostGroup* host, Group* rail, std::byte* out,
              std::span<const std::size_t> bytes, std::vector<std::byte>& room)
        : topology_(topology), host_(host), rail_(rail), out_(out), bytes_(bytes), room_(room) {
        std::size_t before = 0;
        for (const std::size_t one : bytes) {
            offsets_.push_back(before);
            before += one;
        }
        before = 0;
        for (std::uint32_t number = 0; number < topology.rails(); ++number) {
            carried_.push_back(topology.carried_by(number));
            Chunk chunk{before, 0};
            for (const std::uint32_t rank : carried_.back()) chunk.count += bytes[rank];
            chunks_.push_back(chunk);
            before += chunk.count;
        }
    }

    Result<void> run(const void* in) {
        copy_bytes(part(topology_.rank()), in, bytes_[topology_.rank()]);
        if (host_ != nullptr)
            if (auto done = share_own(); !done) return done;
        const std::byte* come = nullptr;
        if (rail_ != nullptr) {
            auto brought = bring();
            if (!brought) return std::unexpected(brought.error());
            come = *brought;
        }
        const auto take = [this](std::size_t at, std::size_t n, const std::byte* from) {
            unpack(at, n, from);
        };
        if (host_ != nullptr) return host_->share_chunks(chunks_, 1, come, take);
        unpack(chunks_[0].at, chunks_[0].count, come);
        return {};
    }

private:
    std::byte* part(std::uint32_t rank) const { return out_ + offsets_[rank]; }
    bool is_here(std::uint32_t rank) const { return topology_.host_of(rank) == topology_.host(); }

    Result<void> share_own();
    Result<const std::byte*> bring();
    void unpack(std::size_t at, std::size_t n, const std::byte* from) const;

    const Topology& topology_;
    HostGroup* const host_;
    Group* const rail_;
    std::byte* const out_;
    const std::span<const std::size_t> bytes_;  ///< of each rank's part
    std::vector<std::byte>& room_;
    std::vector<std::size_t> offsets_;                 ///< of each rank's part in `out`
    std::vector<std::vector<std::uint32_t>> carried_;  ///< ranks, by rail
    std::vector<Chunk> chunks_;                        ///< what rails carry, one behind the other
};

/// The parts of this host's ranks, in memory.
Result<void> Allgather::share_own() {
    const auto ranks = topology_.ranks_of(topology_.host());
    std::vector<Chunk> parts;
    std::size_t before = 0;
    for (const std::uint32_t rank : ranks) {
        parts.push_back({before, bytes_[rank]});
        before += bytes_[rank];
    }
    const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
        std::size_t place = 0;
        while (place + 1 < parts.size() && at >= parts[place + 1].at) ++place;
        copy_from_other(part(ranks[place]) + (at - parts[place].at), from, n);
    };
    return host_->share_chunks(parts, 1, part(topology_.rank()), take);
}

/// All hosts' parts that this rail carries, host by host.
Result<const std::byte*> Allgather::bring() {
    const auto& ranks = carried_[topology_.place()];
    room_.resize(std::max(room_.size(), chunks_[topology_.place()].count));
    std::vector<std::size_t> of_hosts(topology_.hosts());
    std::size_t before = 0;  // hosts lie one behind the other
    std::byte* own = nullptr;
    for (const std::uint32_t rank : ranks) {
        std::byte* const place = room_.data() + before;
        if (is_here(rank)) {
            copy_bytes(place, part(rank), bytes_[rank]);
            if (own == nullptr) own = place;
        }
        of_hosts[topology_.host_of(rank)] += bytes_[rank];
        before += bytes_[rank];
    }
    if (auto done = rail_->run(op::allgatherv(own, room_.data(), of_hosts)); !done)
        return std::unexpected(done.error());
    return room_.data();
}

/// Puts bytes [at, at + n) of what rails have brought from other hosts where they belong.
void Allgather::unpack(std::size_t at, std::size_t n, const std::byte* from) const {
    std::uint32_t rail = 0;
    while (rail + 1 < chunks_.size() && at >= chunks_[rail + 1].at) ++rail;
    std::size_t begin = chunks_[rail].at;
    for (const std::uint32_t rank : carried_[rail]) {
        const std::size_t end = begin + bytes_[rank];
        const std::size_t first = std::max(begin, at);
        const std::size_t last = std::min(end, at + n);
        if (first < last && !is_here(rank))
            copy_from_other(part(rank) + (first - begin), from + (first - at), last - first);
        begin = end;
    }
}

}  // namespace

Result<void> NativeGroup::allgather_levels(const Operation& what) {
    const std::vector<std::size_t> bytes = parts_of(what, spec_.size);
    auto* const out = static_cast<std::byte*>(what.out);
    return Allgather(topology_, host_, rail_.get(), out, bytes, scratch_).run(what.in);
}

}  // namespace dtrun::collectives::native
