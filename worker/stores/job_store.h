#pragma once

#include "rendezvous/exchange/store.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace dtrun::stores {

class PendingQuery;

/// A job's keys and values in its current generation, as the servers of foreign protocols see them:
/// the same requests and replies, whether the store is in this process or at the other end of the
/// tree.
///
/// Thread: one.
class JobStore {
public:
    using Answer = std::function<void(const StoreReply&)>;

    virtual ~JobStore() = default;

    /// Does `request` after all that were asked before it. `request` is not looked at after the call.
    /// \param answer  called once, after this call, unless the query goes before; it may ask again
    [[nodiscard]] PendingQuery ask(const StoreRequest& request, Answer answer);

protected:
    friend class PendingQuery;
    using Ticket = std::uint64_t;

    virtual Ticket start(const StoreRequest& request, Answer answer) = 0;
    /// Nobody wants that answer any more; what waits for it ends. Also after the answer.
    virtual void forget(Ticket ticket) = 0;
};

/// What a JobStore was asked; when this goes, the store forgets it.
///
/// Lifetime: the store outlives it.
class PendingQuery {
public:
    PendingQuery() = default;
    ~PendingQuery() { forget(); }
    PendingQuery(PendingQuery&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)), ticket_(other.ticket_) {}
    PendingQuery& operator=(PendingQuery&& other) noexcept {
        forget();
        store_ = std::exchange(other.store_, nullptr);
        ticket_ = other.ticket_;
        return *this;
    }

    /// Whether there is one: until it is forgotten, or who takes its answer says that it is answered.
    explicit operator bool() const { return store_ != nullptr; }
    void answered() { store_ = nullptr; }
    void forget() {
        if (JobStore* const store = std::exchange(store_, nullptr)) store->forget(ticket_);
    }

private:
    friend class JobStore;
    PendingQuery(JobStore& store, JobStore::Ticket ticket) : store_(&store), ticket_(ticket) {}

    JobStore* store_ = nullptr;
    JobStore::Ticket ticket_ = 0;
};

inline PendingQuery JobStore::ask(const StoreRequest& request, Answer answer) {
    return {*this, start(request, std::move(answer))};
}

/// Several queries of one user, each of which goes before its answer is taken.
///
/// Lifetime: the store outlives it.
class PendingQueries {
public:
    explicit PendingQueries(JobStore& store) : store_(store) {}
    PendingQueries(const PendingQueries&) = delete;
    PendingQueries& operator=(const PendingQueries&) = delete;

    void ask(const StoreRequest& request, JobStore::Answer answer) {
        const std::uint64_t number = ++last_;
        queries_[number] = store_.ask(
            request, [this, number, answer = std::move(answer)](const StoreReply& reply) {
                queries_.extract(number).mapped().answered();
                answer(reply);
            });
    }
    void forget_all() { queries_.clear(); }
    std::size_t size() const { return queries_.size(); }

private:
    JobStore& store_;
    std::map<std::uint64_t, PendingQuery> queries_;
    std::uint64_t last_ = 0;
};

}  // namespace dtrun::stores
