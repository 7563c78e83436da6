#pragma once

#include "base/clock.h"
#include "rendezvous/exchange/store_history.h"
#include "rendezvous/exchange/wait_lines.h"
#include "rendezvous/wire/store_request.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dtrun {

/// What a store keeps of a key with a value, besides the value.
struct ValueFacts {
    std::uint64_t revision = 0;
    std::uint64_t owner = 0;             ///< 0: nobody's
    Deadline expires = Deadline::max();  ///< when it is erased
    WaitLines::Token given{};            ///< of a lock: the request that was given it

    bool is_lock() const { return given != WaitLines::Token{}; }
};

/// Whose an item is.
struct ItemClaim {
    std::uint64_t owner = 0;   ///< 0: nobody's
    WaitLines::Token given{};  ///< the request that was given it
};

/// Records every change of a store, in order, each before a reply that depends on it.
class StoreJournal {
public:
    virtual ~StoreJournal() = default;
    virtual void value_set(std::string_view key, std::string_view value,
                           const ValueFacts& facts) = 0;
    virtual void item_pushed(std::string_view key, std::uint64_t item, std::string_view value,
                             std::uint64_t revision) = 0;
    /// \param claim  nobody's: it was given back
    virtual void item_claimed(std::string_view key, std::uint64_t item, const ItemClaim& claim,
                              std::uint64_t revision) = 0;
    /// It is gone: popped, or acknowledged.
    virtual void item_popped(std::string_view key, std::uint64_t item, std::uint64_t revision) = 0;
    virtual void value_erased(std::string_view key, std::uint64_t revision) = 0;
    virtual void queue_erased(std::string_view key, std::uint64_t revision) = 0;
};

struct StoreReply {
    Status status{};
    Bytes results;  ///< a MessagePack array
};

/// Keys and values of one generation of a job, and the requests that wait for them. A pure state
/// machine: no sockets, no clock; time comes in.
///
/// Requests are executed in the order of the calls, so all operations are linearizable. Who waits is
/// answered when all changes of a call are done.
///
/// Values, locks and claimed items may be an owner's: a client, of which others say when it is gone for
/// good. Revisions only grow, so that of a lock is a token that no later holder has.
class Store {
public:
    /// Names a waiting request: client and request id.
    using Token = WaitLines::Token;
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
    /// Erases what has lived for long enough, and answers who has waited for long enough.
    void expire(Deadline now);
    Deadline next_deadline() const;
    /// Answers all waiting requests, e.g. because the generation is over.
    void answer_all(const StoreReply& reply);

    /// An owner is gone for good: its keys are erased, what it has claimed comes back, and what it waits for is
    /// refused.
    void owner_gone(std::uint64_t owner);
    /// What a request of this owner was given is not wanted: the lock is free, the item comes back.
    void take_back(std::uint64_t owner, Token request);
    /// Whether the owner still has what this lock or claim was answered.
    bool still_has(const StoreRequest& request, const StoreReply& reply) const;
    /// Whose something is.
    std::vector<std::uint64_t> owners() const;

    std::size_t bytes() const { return bytes_; }
    std::size_t waiting_bytes() const { return waiting_bytes_; }  ///< of requests that wait
    /// Of changes that are remembered for those who watch prefixes.
    std::size_t history_bytes() const { return history_ ? history_->bytes() : 0; }
    /// Who knows less than all of them gets all that there is.
    void forget_history();
    /// Sets how many bytes others keep that count against bytes_max, too.
    void count_besides(std::size_t bytes) { besides_ = bytes; }
    std::size_t size() const { return entries_.size(); }
    std::size_t waiting() const { return waiters_.size(); }

    // Restore a journal's records.
    void restore_value(std::string key, std::string value, const ValueFacts& facts);
    void restore_item(std::string key, std::uint64_t item, std::string value,
                      const ItemClaim& claim);
    /// Makes future revisions larger than this one: revisions of erased keys were not recorded.
    void restore_revision(std::uint64_t revision) { revision_ = std::max(revision_, revision); }
    /// All is there. Queues get a new revision, as their last ones were not recorded.
    void end_restore();
    std::uint64_t revision() const { return revision_; }  ///< of the last change

private:
    /// An item's number is the revision with which it was pushed: no other item has it, in any queue.
    struct Item {
        std::uint64_t number = 0;
        std::string value;
    };
    struct Claimed {
        ItemClaim claim;
        std::string value;
    };
    struct Queue {
        std::deque<Item> items;  ///< that nobody has claimed, by their numbers
        std::map<std::uint64_t, Claimed> claimed;
    };
    struct Entry {
        std::string value;
        ValueFacts facts;
        std::unique_ptr<Queue> queue;
        bool is_queue() const { return queue != nullptr; }
    };
    using Entries = std::map<std::string, Entry, std::less<>>;
    struct Owned {
        std::set<std::string> keys;
        std::set<std::pair<std::string, std::uint64_t>> items;  ///< by queue and number
        std::set<Token> waiters;
        bool is_empty() const { return keys.empty() && items.empty() && waiters.empty(); }
    };
    struct Waiter {
        std::vector<std::string> texts;  ///< what the views of the request are of
        StoreRequest request;
        std::size_t at = 0;  ///< keys[at] is what it waits for
        Deadline deadline{};
    };
    using Waiters = std::map<Token, Waiter>;

    const Entry* find(std::string_view key) const;
    std::optional<StoreReply> carry_out(Token token, const StoreRequest& request, Deadline now);
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    StoreReply name(const StoreRequest& request);
#define DTRUN_WAITING_OPERATION(name, number, function, effect, arguments)
#define DTRUN_OTHER_OPERATION(name, number, function, effect, arguments)
#include "rendezvous/wire/operations.def"

    // store.cpp: what changes
    void put_value(std::string_view key, std::string value, ValueFacts facts);
    void change_value(std::string_view key, std::string value);
    static std::optional<StoreReply> unwritable(const Entry* entry);
    Entries::iterator erase_entry(Entries::iterator entry);
    StoreReply set_with(const StoreRequest& request, const ValueFacts& facts);
    void note(std::string_view key, StoreHistory::Kind kind, std::string_view value = {});

    // store_queues.cpp
    std::uint64_t push_item(std::string_view key, std::string_view value);
    std::optional<StoreReply> try_take(const StoreRequest& request, Token token);
    Claimed* find_claimed(const StoreRequest& request);
    void return_item(Entries::iterator queue, std::uint64_t item);
    void queue_changed(Entries::iterator queue);

    // store_owners.cpp
    std::optional<StoreReply> try_lock(const StoreRequest& request, Token token);
    void own(std::string_view key, const ValueFacts& facts);
    void disown(std::string_view key, const ValueFacts& facts);
    void disown_item(std::uint64_t owner, const std::string& key, std::uint64_t item);
    void let_go(std::uint64_t owner);
    bool holds(const Condition& condition) const;
    std::optional<StoreReply> refusal_of(const std::vector<Action>& actions) const;
    void carry_out(const Action& action);

    // store_waits.cpp
    std::optional<StoreReply> try_waiting(const StoreRequest& request, std::size_t& at,
                                          Token token);
    std::optional<StoreReply> try_read(const StoreRequest& request, std::size_t& at);
    std::optional<StoreReply> try_watch(const StoreRequest& request);
    std::optional<StoreReply> try_watch_prefix(const StoreRequest& request);
    StoreReply all_under(std::string_view prefix) const;
    std::optional<StoreReply> wait_for(Token token, const StoreRequest& request, Deadline now);
    StoreReply too_late(const StoreRequest& request) const;
    void wake();
    void hand_over(WaitLines& lines, const std::string& key);
    void retry(WaitLines& lines, std::string_view name);
    void remove(Waiters::iterator waiter);
    void leave_line(const Waiters::value_type& waiter);
    void erase_expired(Deadline now);
    void end_wait(Waiters::iterator waiter, const StoreReply& reply);
    WaitLines& lines_of(Op op);
    static std::size_t bytes_of(const Waiter& waiter);
    bool has_room(std::size_t bytes) const {
        return bytes_ + waiting_bytes_ + besides_ + bytes <= limits_.bytes_max;
    }

    Answer answer_;
    StoreJournal* journal_;
    Limits limits_;
    Entries entries_;
    std::unordered_map<std::uint64_t, Owned> owned_;       ///< by owner
    std::set<std::pair<Deadline, std::string>> expiries_;  ///< of values
    std::optional<StoreHistory> history_;                  ///< once somebody has asked for a prefix
    std::size_t bytes_ = 0;
    std::size_t waiting_bytes_ = 0;  ///< of requests that wait
    std::size_t besides_ = 0;
    std::uint64_t revision_ = 0;  ///< of the last change
    Deadline now_{};              ///< of the last request
    Waiters waiters_;
    WaitLines for_keys_, for_locks_, for_items_, for_prefixes_;
    std::set<std::pair<Deadline, Token>> deadlines_;
    std::deque<std::string> changed_;  ///< keys of which those who wait are still to hear
    std::uint64_t told_ = 0;           ///< up to this revision they have heard
};

}  // namespace dtrun
