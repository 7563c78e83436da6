#include "tests/collectives/support/local_group.h"

#include "collectives/codec/reduce.h"
#include "tests/collectives/support/elements.h"

#include <algorithm>
#include <cstring>

namespace dtrun::collectives {

class LocalPending final : public Pending {
public:
    LocalPending(LocalNetwork& network, std::vector<LocalNetwork::Shared> transfers)
        : network_(network), transfers_(std::move(transfers)) {}
    ~LocalPending() override { static_cast<void>(wait()); }

    void poll() override {
        std::unique_lock lock(network_.mutex_);
        static_cast<void>(progress(lock));
    }

    Result<void> wait() override {
        std::unique_lock lock(network_.mutex_);
        for (;;) {
            const std::optional<LocalNetwork::Clock::time_point> next = progress(lock);
            if (!next) break;
            if (network_.broken()) {
                give_up(lock);
                break;
            }
            if (*next == LocalNetwork::Clock::time_point::max())
                network_.changed_.wait(lock);
            else
                network_.changed_.wait_until(lock, *next);
        }
        return result();
    }

private:
    using State = LocalNetwork::Transfer::State;

    /// Copies what is due. When to look again, unless all is done.
    std::optional<LocalNetwork::Clock::time_point> progress(std::unique_lock<std::mutex>& lock) {
        // Others go on while one is copied: look at all once more, or their news are missed.
        while (copy_one(lock)) continue;
        std::optional<LocalNetwork::Clock::time_point> next;
        for (const LocalNetwork::Shared& one : transfers_) {
            if (one->state == State::done || one->state == State::given_up) continue;
            const auto due =
                one->state == State::matched ? one->due : LocalNetwork::Clock::time_point::max();
            next = next ? std::min(*next, due) : due;
        }
        return next;
    }

    bool copy_one(std::unique_lock<std::mutex>& lock) {
        for (const LocalNetwork::Shared& one : transfers_) {
            if (one->state != State::matched || one->due > LocalNetwork::Clock::now() ||
                network_.broken())
                continue;
            one->state = State::copying;
            const std::size_t bytes = std::min(one->sent_bytes, one->received_bytes);
            lock.unlock();
            if (bytes != 0) std::memcpy(one->target, one->source, bytes);
            lock.lock();
            one->state = State::done;
            network_.changed_.notify_all();
            return true;
        }
        return false;
    }

    /// Nobody touches this rank's data from now on.
    void give_up(std::unique_lock<std::mutex>& lock) {
        for (const LocalNetwork::Shared& one : transfers_) {
            network_.changed_.wait(lock, [&] { return one->state != State::copying; });
            if (one->state != State::done) one->state = State::given_up;
        }
    }

    Result<void> result() const {
        for (const LocalNetwork::Shared& one : transfers_) {
            if (one->state == State::given_up) {
                if (network_.killed_)
                    return fail(Errc::closed, "rank {} is gone", *network_.killed_);
                return fail(Errc::cancelled, "aborted");
            }
            if (one->sent_bytes != one->received_bytes)
                return fail(Errc::internal, "rank {} sent {} B to rank {}, which expected {} B",
                            one->from, one->sent_bytes, one->to, one->received_bytes);
        }
        return {};
    }

    LocalNetwork& network_;
    std::vector<LocalNetwork::Shared> transfers_;
};

/// Everything is made of messages; reductions are done by rank 0 in the order of ranks.
class LocalGroup final : public Group {
public:
    LocalGroup(LocalNetwork& network, std::uint32_t rank) : network_(network), rank_(rank) {}

    GroupFacts facts() const override { return {"threads", "memory", {}}; }

    Result<void> allreduce(const void* in, void* out, std::size_t count, DType type,
                           Reduce op) override {
        if (auto ok = reduce(in, out, count, type, op, 0); !ok) return ok;
        return broadcast(out, count * bytes_of(type), 0);
    }

    Result<void> reduce(const void* in, void* out, std::size_t count, DType type, Reduce op,
                        std::uint32_t root) override {
        const std::size_t bytes = count * bytes_of(type);
        std::vector<std::byte> all(rank_ == root ? bytes * size() : 0);
        if (auto ok = gather(in, all.data(), bytes, root); !ok) return ok;
        if (rank_ != root || bytes == 0) return {};
        for (std::uint32_t other = 1; other < size(); ++other)
            reduce_into(all.data(), all.data(), &all[other * bytes], count, type, op);
        if (op == Reduce::average) divide(all.data(), count, type, size());
        std::memcpy(out, all.data(), bytes);
        return {};
    }

    Result<void> reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                Reduce op) override {
        const std::size_t bytes = count * bytes_of(type);
        std::vector<std::byte> all(rank_ == 0 ? bytes * size() : 0);
        if (auto ok = reduce(in, all.data(), count * size(), type, op, 0); !ok) return ok;
        return scatter(all.data(), out, bytes, 0);
    }

    Result<void> broadcast(void* data, std::size_t bytes, std::uint32_t root) override {
        std::vector<Send> sends;
        if (rank_ != root) return exchange({}, {{root, data, bytes}});
        for (std::uint32_t peer = 0; peer < size(); ++peer)
            if (peer != root) sends.push_back({peer, data, bytes});
        return exchange(sends, {});
    }

    Result<void> allgather(const void* in, void* out, std::size_t bytes) override {
        return allgatherv(in, out, std::vector<std::size_t>(size(), bytes));
    }

    Result<void> allgatherv(const void* in, void* out,
                            std::span<const std::size_t> bytes) override {
        std::vector<Send> sends;
        std::vector<Receive> receives;
        auto* to = static_cast<std::byte*>(out);
        for (std::uint32_t peer = 0; peer < size(); ++peer) {
            if (peer == rank_) {
                copy(to, in, bytes[peer]);
            } else {
                sends.push_back({peer, in, bytes[rank_]});
                receives.push_back({peer, to, bytes[peer]});
            }
            if (bytes[peer] != 0) to += bytes[peer];
        }
        return exchange(sends, receives);
    }

    Result<void> gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) override {
        if (rank_ != root) return exchange({{root, in, bytes}}, {});
        std::vector<Receive> receives;
        for (std::uint32_t peer = 0; peer < size(); ++peer) {
            if (peer == root)
                copy(part(out, bytes, peer), in, bytes);
            else
                receives.push_back({peer, part(out, bytes, peer), bytes});
        }
        return exchange({}, receives);
    }

    Result<void> scatter(const void* in, void* out, std::size_t bytes,
                         std::uint32_t root) override {
        if (rank_ != root) return exchange({}, {{root, out, bytes}});
        std::vector<Send> sends;
        for (std::uint32_t peer = 0; peer < size(); ++peer) {
            if (peer == root)
                copy(out, part(in, bytes, peer), bytes);
            else
                sends.push_back({peer, part(in, bytes, peer), bytes});
        }
        return exchange(sends, {});
    }

    Result<void> alltoall(const void* in, void* out, std::size_t bytes) override {
        std::vector<Send> sends;
        std::vector<Receive> receives;
        for (std::uint32_t peer = 0; peer < size(); ++peer) {
            if (peer == rank_) {
                copy(part(out, bytes, peer), part(in, bytes, peer), bytes);
                continue;
            }
            sends.push_back({peer, part(in, bytes, peer), bytes});
            receives.push_back({peer, part(out, bytes, peer), bytes});
        }
        return exchange(sends, receives);
    }

    Result<void> barrier() override {
        std::byte nothing{};
        if (auto ok = reduce(&nothing, &nothing, 1, DType::u8, Reduce::max, 0); !ok) return ok;
        return broadcast(&nothing, 1, 0);
    }

    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override {
        const std::lock_guard lock(network_.mutex_);
        std::vector<LocalNetwork::Shared> transfers;
        for (const Send& one : sends) {
            LocalNetwork::Shared transfer = network_.post(rank_, one.peer, true);
            transfer->source = one.data;
            transfer->sent_bytes = one.bytes;
            network_.schedule(*transfer, one.bytes);
            transfers.push_back(std::move(transfer));
        }
        for (const Receive& one : receives) {
            LocalNetwork::Shared transfer = network_.post(one.peer, rank_, false);
            transfer->target = one.data;
            transfer->received_bytes = one.bytes;
            transfers.push_back(std::move(transfer));
        }
        network_.changed_.notify_all();
        return std::make_unique<LocalPending>(network_, std::move(transfers));
    }

    void abort() noexcept override {
        const std::lock_guard lock(network_.mutex_);
        network_.aborted_ = true;
        network_.changed_.notify_all();
    }

    std::optional<std::uint32_t> lost() const override {
        const std::lock_guard lock(network_.mutex_);
        return network_.killed_;
    }

private:
    std::uint32_t size() const { return network_.size_; }

    static void copy(void* to, const void* from, std::size_t bytes) {
        if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
    }
    static std::byte* part(void* all, std::size_t bytes, std::uint32_t rank) {
        return bytes == 0 ? nullptr : static_cast<std::byte*>(all) + bytes * rank;
    }
    static const std::byte* part(const void* all, std::size_t bytes, std::uint32_t rank) {
        return bytes == 0 ? nullptr : static_cast<const std::byte*>(all) + bytes * rank;
    }

    Result<void> exchange(const std::vector<Send>& sends, const std::vector<Receive>& receives) {
        auto pending = start(sends, receives);
        if (!pending) return std::unexpected(pending.error());
        return (*pending)->wait();
    }

    LocalNetwork& network_;
    std::uint32_t rank_;
};

LocalNetwork::LocalNetwork(std::uint32_t size, Options options)
    : size_(size), options_(options), free_at_(size) {}

std::unique_ptr<Group> LocalNetwork::connect(std::uint32_t rank) {
    return std::make_unique<LocalGroup>(*this, rank);
}

void LocalNetwork::kill(std::uint32_t rank) {
    const std::lock_guard lock(mutex_);
    if (!killed_) killed_ = rank;
    changed_.notify_all();
}

LocalNetwork::Shared LocalNetwork::post(std::uint32_t from, std::uint32_t to, bool send) {
    std::deque<Shared>& queue = unmatched_[{from, to}];
    bool Transfer::*const mine = send ? &Transfer::has_send : &Transfer::has_receive;
    if (!queue.empty() && !((*queue.front()).*mine)) {
        Shared found = queue.front();
        queue.pop_front();
        (*found).*mine = true;
        found->state = Transfer::State::matched;
        return found;
    }
    auto made = std::make_shared<Transfer>();
    made->from = from;
    made->to = to;
    (*made).*mine = true;
    queue.push_back(made);
    return made;
}

void LocalNetwork::schedule(Transfer& transfer, std::size_t bytes) {
    transfer.due = Clock::now();
    if (options_.bytes_per_second > 0) {
        Clock::time_point& free = free_at_[transfer.from];
        free = std::max(free, transfer.due) +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                   static_cast<double>(bytes) / options_.bytes_per_second));
        transfer.due = free;
    }
    const auto delay = static_cast<std::uint64_t>(options_.delay_max.count());
    if (delay != 0)
        transfer.due += std::chrono::microseconds(mix(options_.seed, ++messages_) % (delay + 1));
}

}  // namespace dtrun::collectives
