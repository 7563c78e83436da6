#include "rendezvous/exchange/store.h"

#include "base/strings.h"
#include "rendezvous/exchange/store_replies.h"

#include <algorithm>
#include <limits>

namespace dtrun {
namespace {

constexpr std::uint64_t kListMax = 100'000;

}  // namespace

Store::Store(Answer answer, StoreJournal* journal, Limits limits)
    : answer_(std::move(answer)), journal_(journal), limits_(limits) {}

const Store::Entry* Store::find(std::string_view key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
}

std::optional<StoreReply> Store::ask(Token token, const StoreRequest& request, Deadline now) {
    now_ = now;
    erase_expired(now);
    auto reply = carry_out(token, request, now);
    wake();
    return reply;
}

std::optional<StoreReply> Store::carry_out(Token token, const StoreRequest& request, Deadline now) {
    switch (request.op) {
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    case Op::name:                                                 \
        return name(request);
#define DTRUN_WAITING_OPERATION(name, number, function, effect, arguments) \
    case Op::name:                                                         \
        return wait_for(token, request, now);
#define DTRUN_OTHER_OPERATION(name, number, function, effect, arguments) \
    case Op::name:                                                       \
        break;
#include "rendezvous/wire/operations.def"
    }
    return refused("unknown operation");
}

StoreReply Store::set(const StoreRequest& request) {
    return set_with(request, {});
}

/// Sets a value, whosever it was before, with these facts.
StoreReply Store::set_with(const StoreRequest& request, const ValueFacts& facts) {
    const std::string_view key = request.keys.front();
    const std::string_view value = request.values.front();
    const Entry* entry = find(key);
    if (auto refusal = unwritable(entry)) return *refusal;
    const std::size_t before = entry != nullptr ? entry->value.size() + key.size() : 0;
    if (value.size() + key.size() > before && !has_room(value.size() + key.size() - before))
        return full();
    put_value(key, std::string(value), facts);
    return reply(Status::ok);
}

StoreReply Store::add(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const Entry* entry = find(key);
    if (auto refusal = unwritable(entry)) return *refusal;
    std::int64_t sum = 0;
    if (entry != nullptr) {
        const auto number = to_int(entry->value, std::numeric_limits<long long>::min(),
                                   std::numeric_limits<long long>::max());
        if (!number) return reply(Status::wrong_type);
        sum = *number;
    } else if (!has_room(key.size() + kEntryBytes)) {
        return full();
    }
    if (__builtin_add_overflow(sum, request.delta, &sum))
        return refused("the sum does not fit 64 bits");
    change_value(key, std::to_string(sum));
    return ok(1, [sum](PackWriter& out) { out.integer(sum); });
}

StoreReply Store::compare_set(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const Entry* entry = find(key);
    if (entry != nullptr && entry->is_queue()) return reply(Status::wrong_type);
    const bool matches = entry == nullptr ? !request.expected
                                          : request.expected && entry->value == *request.expected;
    if (matches) {
        const ValueFacts facts = entry != nullptr ? entry->facts : ValueFacts{};
        if (StoreReply done = set_with(request, facts); done.status != Status::ok) return done;
        entry = find(key);
    }
    return ok(2, [&](PackWriter& out) {
        out.boolean(matches);
        if (entry != nullptr)
            out.bin(entry->value);
        else
            out.nil();
    });
}

StoreReply Store::append(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const std::string_view bytes = request.values.front();
    const Entry* entry = find(key);
    if (auto refusal = unwritable(entry)) return *refusal;
    const std::size_t size = (entry != nullptr ? entry->value.size() : 0) + bytes.size();
    if (size > kValueBytesMax) return refused("the value would be too large");
    if (!has_room(bytes.size() + (entry != nullptr ? 0 : key.size() + kEntryBytes))) return full();
    std::string value = entry != nullptr ? entry->value : std::string();
    value += bytes;
    change_value(key, std::move(value));
    return ok_number(size);
}

StoreReply Store::check(const StoreRequest& request) {
    return ok_bool(std::ranges::all_of(
        request.keys, [this](std::string_view key) { return find(key) != nullptr; }));
}

StoreReply Store::erase(const StoreRequest& request) {
    const auto found = entries_.find(request.keys.front());
    if (found == entries_.end()) return ok_bool(false);
    erase_entry(found);
    return ok_bool(true);
}

StoreReply Store::erase_prefix(const StoreRequest& request) {
    const std::string prefix(request.keys.front());
    std::uint64_t erased = 0;
    auto at = entries_.lower_bound(prefix);
    for (; at != entries_.end() && at->first.starts_with(prefix); ++erased) at = erase_entry(at);
    return ok_number(erased);
}

StoreReply Store::multi_set(const StoreRequest& request) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
        if (auto refusal = unwritable(find(request.keys[i]))) return *refusal;
        bytes += request.keys[i].size() + request.values[i].size() + kEntryBytes;
    }
    if (!has_room(bytes)) return full();
    for (std::size_t i = 0; i < request.keys.size(); ++i)
        put_value(request.keys[i], std::string(request.values[i]), {});
    return reply(Status::ok);
}

StoreReply Store::list(const StoreRequest& request) {
    const std::string_view prefix = request.keys.front();
    const std::uint64_t limit = std::min(request.number, kListMax);
    std::vector<std::string_view> keys;
    std::size_t bytes = 0;
    bool more = false;
    auto at = request.after.empty() || request.after < prefix ? entries_.lower_bound(prefix)
                                                              : entries_.upper_bound(request.after);
    for (; at != entries_.end() && at->first.starts_with(prefix); ++at) {
        bytes += at->first.size() + 5;
        more = keys.size() == limit || bytes > kValueBytesMax;
        if (more) break;
        keys.push_back(at->first);
    }
    return ok(2, [&](PackWriter& out) {
        out.array(static_cast<std::uint32_t>(keys.size()));
        for (const std::string_view key : keys) out.bin(key);
        out.boolean(more);
    });
}

StoreReply Store::count(const StoreRequest&) {
    return ok_number(entries_.size());
}

/// Why no value can be written where this is; nothing: one can.
std::optional<StoreReply> Store::unwritable(const Entry* entry) {
    if (entry == nullptr) return std::nullopt;
    if (entry->is_queue()) return reply(Status::wrong_type);
    // Its revision is the holder's token.
    if (entry->facts.is_lock()) return refused("the key is a lock that somebody holds");
    return std::nullopt;
}

/// \param facts  whose it is and how long it lives; its revision is a new one
void Store::put_value(std::string_view key, std::string value, ValueFacts facts) {
    const auto found = entries_.find(key);
    const bool exists = found != entries_.end();
    const auto entry = exists ? found : entries_.emplace(key, Entry{}).first;
    bytes_ += value.size();
    bytes_ += exists ? 0 : key.size() + kEntryBytes;
    bytes_ -= entry->second.value.size();
    disown(key, entry->second.facts);
    facts.revision = ++revision_;
    own(key, facts);
    entry->second.value = std::move(value);
    entry->second.facts = facts;
    if (journal_ != nullptr) journal_->value_set(key, entry->second.value, facts);
    note(key, StoreHistory::Kind::value, entry->second.value);
}

/// The same, and it stays whose it is.
void Store::change_value(std::string_view key, std::string value) {
    const Entry* entry = find(key);
    put_value(key, std::move(value), entry != nullptr ? entry->facts : ValueFacts{});
}

/// \return the next one
Store::Entries::iterator Store::erase_entry(Entries::iterator entry) {
    const std::string key = entry->first;
    bytes_ -= key.size() + entry->second.value.size() + kEntryBytes;
    disown(key, entry->second.facts);
    if (const Queue* queue = entry->second.queue.get()) {
        for (const Item& item : queue->items) bytes_ -= item.value.size() + kItemBytes;
        for (const auto& [number, item] : queue->claimed) {
            bytes_ -= item.value.size() + kItemBytes;
            disown_item(item.claim.owner, key, number);
        }
    }
    const bool is_queue = entry->second.is_queue();
    const auto next = entries_.erase(entry);
    ++revision_;
    if (journal_ != nullptr && is_queue) journal_->queue_erased(key, revision_);
    if (journal_ != nullptr && !is_queue) journal_->value_erased(key, revision_);
    note(key, StoreHistory::Kind::erased);
    return next;
}

/// A key has changed, with the last revision.
void Store::note(std::string_view key, StoreHistory::Kind kind, std::string_view value) {
    if (history_) history_->add({revision_, kind, std::string(key), std::string(value)});
    if (!waiters_.empty()) changed_.emplace_back(key);
}

void Store::restore_value(std::string key, std::string value, const ValueFacts& facts) {
    bytes_ += key.size() + value.size() + kEntryBytes;
    revision_ = std::max(revision_, facts.revision);
    own(key, facts);
    entries_[std::move(key)] = Entry{std::move(value), facts, nullptr};
}

void Store::end_restore() {
    for (auto& [key, entry] : entries_)
        if (entry.is_queue()) entry.facts.revision = revision_;
}

}  // namespace dtrun
