// What belongs to somebody, or lives for a while only; and what is done only if all of it is as expected.

#include "base/strings.h"
#include "rendezvous/exchange/store.h"
#include "rendezvous/exchange/store_replies.h"

#include <algorithm>
#include <limits>
#include <set>

namespace dtrun {
namespace {

/// A time that can be added to any other.
constexpr std::uint64_t kLongestLifeMs = 10ull * 365 * 24 * 3'600 * 1'000;

std::optional<std::int64_t> number_of(std::string_view text) {
    return to_int(text, std::numeric_limits<long long>::min(),
                  std::numeric_limits<long long>::max());
}

}  // namespace

StoreReply Store::put(const StoreRequest& request) {
    ValueFacts facts;
    facts.owner = request.owner;
    if (request.ttl_ms != 0)
        facts.expires = now_ + std::chrono::milliseconds(std::min(request.ttl_ms, kLongestLifeMs));
    return set_with(request, facts);
}

/// Takes a lock that is free. It has had room since it was asked for.
std::optional<StoreReply> Store::try_lock(const StoreRequest& request, Token token) {
    const std::string_view key = request.keys.front();
    if (const Entry* entry = find(key)) {
        if (entry->is_queue()) return reply(Status::wrong_type);
        return std::nullopt;
    }
    put_value(key, std::string(request.values.front()), {0, request.owner, Deadline::max(), token});
    return ok_number(revision_);
}

StoreReply Store::unlock(const StoreRequest& request) {
    const auto entry = entries_.find(request.keys.front());
    if (entry == entries_.end()) return ok_bool(false);
    if (entry->second.is_queue()) return reply(Status::wrong_type);
    const ValueFacts& facts = entry->second.facts;
    if (facts.revision != request.number || facts.owner != request.owner) return ok_bool(false);
    erase_entry(entry);
    return ok_bool(true);
}

/// Writes down whose a value is, and when it ends.
void Store::own(std::string_view key, const ValueFacts& facts) {
    if (facts.owner != 0) owned_[facts.owner].keys.emplace(key);
    if (facts.expires != Deadline::max()) expiries_.emplace(facts.expires, key);
}

void Store::disown(std::string_view key, const ValueFacts& facts) {
    if (facts.expires != Deadline::max()) expiries_.erase({facts.expires, std::string(key)});
    if (facts.owner == 0) return;
    owned_[facts.owner].keys.erase(std::string(key));
    let_go(facts.owner);
}

void Store::disown_item(std::uint64_t owner, const std::string& key, std::uint64_t item) {
    owned_[owner].items.erase({key, item});
    let_go(owner);
}

/// Who has nothing is no owner.
void Store::let_go(std::uint64_t owner) {
    if (const auto found = owned_.find(owner); found != owned_.end() && found->second.is_empty())
        owned_.erase(found);
}

void Store::owner_gone(std::uint64_t owner) {
    const auto found = owned_.find(owner);
    if (found == owned_.end()) return;
    const Owned gone = found->second;
    // Nobody is given what would be a dead one's.
    for (const Token& token : gone.waiters)
        end_wait(waiters_.find(token), refused("its owner has gone"));
    for (const std::string& key : gone.keys) erase_entry(entries_.find(key));
    for (const auto& [queue, item] : gone.items) return_item(entries_.find(queue), item);
    wake();
}

void Store::take_back(std::uint64_t owner, Token request) {
    const auto found = owned_.find(owner);
    if (found == owned_.end()) return;
    const Owned has = found->second;
    for (const std::string& key : has.keys)
        if (const auto lock = entries_.find(key); lock->second.facts.given == request)
            erase_entry(lock);
    for (const auto& [key, item] : has.items)
        if (const auto queue = entries_.find(key);
            queue->second.queue->claimed.at(item).claim.given == request)
            return_item(queue, item);
    wake();
}

bool Store::still_has(const StoreRequest& request, const StoreReply& reply) const {
    PackReader results(reply.results);
    results.array();
    const Entry* entry = find(request.keys.front());
    if (entry == nullptr) return false;
    if (request.op == Op::lock)
        return entry->facts.revision == results.uint() && entry->facts.owner == request.owner;
    results.skip();
    if (!entry->is_queue()) return false;
    const auto item = entry->queue->claimed.find(results.uint());
    return item != entry->queue->claimed.end() && item->second.claim.owner == request.owner;
}

std::vector<std::uint64_t> Store::owners() const {
    std::vector<std::uint64_t> owners;
    for (const auto& [owner, owned] : owned_) owners.push_back(owner);
    return owners;
}

// ---- Transactions -----------------------------------------------------------------------------------------

StoreReply Store::transact(const StoreRequest& request) {
    for (std::size_t i = 0; i < request.conditions.size(); ++i)
        if (!holds(request.conditions[i]))
            return ok(2, [i](PackWriter& out) { out.boolean(false), out.uint(i); });
    if (auto refusal = refusal_of(request.actions)) return *refusal;
    for (const Action& action : request.actions) carry_out(action);
    return ok(2, [](PackWriter& out) { out.boolean(true), out.uint(0); });
}

bool Store::holds(const Condition& condition) const {
    const Entry* entry = find(condition.key);
    switch (condition.kind) {
        case Condition::Kind::missing:
            return entry == nullptr;
        case Condition::Kind::exists:
            return entry != nullptr;
        case Condition::Kind::value:
            return entry != nullptr && !entry->is_queue() && entry->value == condition.value;
        case Condition::Kind::revision:
            return (entry != nullptr ? entry->facts.revision : 0) == condition.revision;
    }
    return false;
}

/// Why these actions cannot all be done; nothing: they can.
std::optional<StoreReply> Store::refusal_of(const std::vector<Action>& actions) const {
    std::set<std::string_view> keys;
    std::size_t bytes = 0;
    for (const Action& action : actions) {
        if (!keys.insert(action.key).second) return refused("one key stands in two actions");
        const Entry* entry = find(action.key);
        const bool is_queue = entry != nullptr && entry->is_queue();
        if (action.kind == Action::Kind::erase) continue;
        if (entry != nullptr && is_queue != (action.kind == Action::Kind::push))
            return reply(Status::wrong_type);
        if (!is_queue)
            if (auto refusal = unwritable(entry)) return refusal;
        bytes += action.key.size() + action.value.size() + kEntryBytes + kItemBytes;
        if (action.kind != Action::Kind::add) continue;
        const auto sum = entry != nullptr ? number_of(entry->value) : 0;
        const auto delta = number_of(action.value);
        std::int64_t together = 0;
        if (!sum || !delta) return reply(Status::wrong_type);
        if (__builtin_add_overflow(*sum, *delta, &together))
            return refused("the sum does not fit 64 bits");
    }
    if (bytes > 0 && !has_room(bytes)) return full();
    return std::nullopt;
}

/// One that can be done.
void Store::carry_out(const Action& action) {
    const auto entry = entries_.find(action.key);
    switch (action.kind) {
        case Action::Kind::set:
            return put_value(action.key, std::string(action.value), {});
        case Action::Kind::erase:
            if (entry != entries_.end()) erase_entry(entry);
            return;
        case Action::Kind::push:
            push_item(action.key, action.value);
            return;
        case Action::Kind::add: {
            const std::int64_t before =
                entry != entries_.end() ? *number_of(entry->second.value) : 0;
            return change_value(action.key, std::to_string(before + *number_of(action.value)));
        }
    }
}

}  // namespace dtrun
