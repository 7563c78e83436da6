#include "tests/collectives/support/local_group.h"

#include "collectives/algorithms/by_messages.h"
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

    Result<void> run(const Operation& what) override {
        const std::uint32_t first = 0;
        switch (what.kind) {
            case Operation::Kind::allreduce:
                if (auto ok = reduce(what, what.out, what.count, first); !ok) return ok;
                return run(op::broadcast(what.out, what.bytes(), first));
            case Operation::Kind::reduce:
                return reduce(what, what.out, what.count, what.root);
            case Operation::Kind::reduce_scatter: {
                std::vector<std::byte> all(rank_ == first ? what.bytes() * size() : 0);
                auto ok = reduce(what, all.data(), what.count * size(), first);
                if (!ok) return ok;
                return run(op::scatter(all.data(), what.out, what.bytes(), first));
            }
            case Operation::Kind::broadcast:
                return broadcast(what);
            case Operation::Kind::barrier: {
                std::vector<std::byte> nothing(size());
                return run(op::allgather(&nothing[rank_], nothing.data(), 1));
            }
            default:
                return run_by_messages(*this, rank_, size(), what);
        }
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

    Result<void> reduce(const Operation& what, void* out, std::size_t count, std::uint32_t root) {
        const std::size_t bytes = count * bytes_of(what.type);
        std::vector<std::byte> all(rank_ == root ? bytes * size() : 0);
        if (auto ok = run(op::gather(what.in, all.data(), bytes, root)); !ok) return ok;
        if (rank_ != root || bytes == 0) return {};
        for (std::uint32_t other = 1; other < size(); ++other)
            reduce_into(all.data(), all.data(), &all[other * bytes], count, what.type, what.reduce);
        if (what.reduce == Reduce::average) divide(all.data(), count, what.type, size());
        std::memcpy(out, all.data(), bytes);
        return {};
    }

    Result<void> broadcast(const Operation& what) {
        const Receive receive{what.root, what.out, what.bytes()};
        if (rank_ != what.root) return exchange(*this, {}, {&receive, 1});
        std::vector<Send> sends;
        for (std::uint32_t peer = 0; peer < size(); ++peer)
            if (peer != rank_) sends.push_back({peer, what.out, what.bytes()});
        return exchange(*this, sends, {});
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
