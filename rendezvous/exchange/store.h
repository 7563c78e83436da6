#pragma once

#include "base/clock.h"
#include "rendezvous/wire/store_request.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dtrun {

/// Records every change of a store, in order, each before a reply that depends on it.
class StoreJournal {
public:
    virtual ~StoreJournal() = default;
    virtual void value_set(std::string_view key, std::string_view value,
                           std::uint64_t revision) = 0;
    virtual void item_pushed(std::string_view key, std::uint64_t item, std::string_view value,
                             std::uint64_t revision) = 0;
    virtual void item_popped(std::string_view key, std::uint64_t item, std::uint64_t revision) = 0;
    virtual void erased(std::string_view key) = 0;
};

struct StoreReply {
    Status status{};
    Bytes results;  ///< a MessagePack array
};

/// Keys and values of one generation of a job, and the requests that wait for them. A pure state
/// machine: no sockets, no clock; time comes in.
///
/// Requests are executed in the order of the calls, so all operations are linearizable.
class Store {
public:
    /// Names a waiting request: client and request id.
    using Token = std::pair<std::uint64_t, std::uint64_t>;
    using Answer = std::function<void(Token, const StoreReply&)>;

    struct Limits {
        std::size_t bytes_max = 1u << 30;    ///< of keys, values and what waits, with overhead
        std::size_t waiters_max = 1u << 20;  ///< requests that wait
    };

    /// \param answer   called for requests that had to wait; must not call the store
    /// \param journal  nullptr: none
    Store(Answer answer, StoreJournal* journal, Limits limits);

    /// Executes `request`, or lets it wait.
    /// \return the reply, or nothing if it waits
    std::optional<StoreReply> ask(Token token, const StoreRequest& request, Deadline now);

    bool cancel(Token token);  ///< answers a waiting request with `cancelled`
    void forget(Token token);  ///< drops a waiting request without an answer
    void expire(Deadline now);
    Deadline next_deadline() const;
    /// Answers all waiting requests, e.g. because the generation is over.
    void answer_all(const StoreReply& reply);

    std::size_t bytes() const { return bytes_; }
    /// Sets how many bytes others keep that count against bytes_max, too.
    void count_besides(std::size_t bytes) { besides_ = bytes; }
    std::size_t size() const { return entries_.size(); }
    std::size_t waiting() const { return waiters_.size(); }

    // Restore a journal's records.
    void restore_value(std::string key, std::string value, std::uint64_t revision);
    void restore_item(std::string key, std::uint64_t item, std::string value,
                      std::uint64_t revision);
    /// Makes future revisions larger than this one: revisions of erased keys were not recorded.
    void restore_revision(std::uint64_t revision) { revision_ = std::max(revision_, revision); }
    std::uint64_t revision() const { return revision_; }  ///< of the last change

private:
    struct Entry {
        std::string value;
        std::deque<std::string> items;  ///< not empty: a queue
        std::uint64_t first_item = 0;   ///< number of items.front()
        std::uint64_t revision = 0;
        bool is_queue() const { return !items.empty(); }
    };
    using Entries = std::map<std::string, Entry, std::less<>>;
    struct Waiter {
        Op op{};
        std::vector<std::string> keys;
        std::size_t at = 0;  ///< keys[at] is what it waits for
        std::uint64_t revision = 0;
        Deadline deadline{};
    };
    using Waiters = std::map<Token, Waiter>;

    const Entry* find(std::string_view key) const;
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    StoreReply name(const StoreRequest& request);
#define DTRUN_WAITING_OPERATION(name, number, function, effect, arguments)
#define DTRUN_OTHER_OPERATION(name, number, function, effect, arguments)
#include "rendezvous/wire/operations.def"

    template <class Keys>
    std::optional<StoreReply> try_waiting(Op op, const Keys& keys, std::size_t& at,
                                          std::uint64_t revision);
    std::optional<StoreReply> wait_for(Token token, const StoreRequest& request, Deadline now);
    void put(std::string_view key, std::string value);
    std::string pop_item(Entries::iterator entry);
    bool has_room(std::size_t bytes) const {
        return bytes_ + waiting_bytes_ + besides_ + bytes <= limits_.bytes_max;
    }
    void changed(std::string_view key);
    Waiters::iterator remove(Waiters::iterator waiter);
    static std::size_t bytes_of(const Waiter& waiter);

    Answer answer_;
    StoreJournal* journal_;
    Limits limits_;
    Entries entries_;
    std::size_t bytes_ = 0;
    std::size_t waiting_bytes_ = 0;  ///< of requests that wait
    std::size_t besides_ = 0;
    std::uint64_t revision_ = 0;  ///< of the last change
    Waiters waiters_;
    std::unordered_map<std::string, std::vector<Token>> waiting_for_;  ///< by key, oldest first
    std::set<std::pair<Deadline, Token>> deadlines_;
};

}  // namespace dtrun
