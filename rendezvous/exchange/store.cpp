#include "rendezvous/exchange/store.h"

#include "base/strings.h"
#include "rendezvous/wire/msgpack.h"

#include <algorithm>
#include <limits>

namespace dtrun {
namespace {

constexpr std::size_t kEntryBytes = 160;  // approximate overhead of a key
constexpr std::size_t kItemBytes = 48;    // approximate overhead of a queue's item
constexpr std::uint64_t kListMax = 100'000;

Bytes no_results() {
    return Bytes(1, '\x90');  // an empty array
}

StoreReply reply(Status status) {
    return {status, no_results()};
}

template <class Write>
StoreReply ok(std::uint32_t items, Write write) {
    StoreReply made{Status::ok, {}};
    PackWriter out(made.results);
    out.array(items);
    write(out);
    return made;
}

StoreReply ok_number(std::uint64_t number) {
    return ok(1, [number](PackWriter& out) { out.uint(number); });
}

StoreReply ok_bool(bool value) {
    return ok(1, [value](PackWriter& out) { out.boolean(value); });
}

StoreReply refused(std::string_view why) {
    StoreReply made = ok(1, [why](PackWriter& out) { out.str(why); });
    made.status = Status::refused;
    return made;
}

StoreReply full() {
    return refused("the store is full");
}

}  // namespace

Store::Store(Answer answer, StoreJournal* journal, Limits limits)
    : answer_(std::move(answer)), journal_(journal), limits_(limits) {}

const Store::Entry* Store::find(std::string_view key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
}

std::optional<StoreReply> Store::ask(Token token, const StoreRequest& request, Deadline now) {
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
    const std::string_view key = request.keys.front();
    const std::string_view value = request.values.front();
    const Entry* entry = find(key);
    if (entry != nullptr && entry->is_queue()) return reply(Status::wrong_type);
    const std::size_t before = entry != nullptr ? entry->value.size() + key.size() : 0;
    if (value.size() + key.size() > before && !has_room(value.size() + key.size() - before))
        return full();
    put(key, std::string(value));
    return reply(Status::ok);
}

StoreReply Store::add(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const Entry* entry = find(key);
    if (entry != nullptr && entry->is_queue()) return reply(Status::wrong_type);
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
    put(key, std::to_string(sum));
    return ok(1, [sum](PackWriter& out) { out.integer(sum); });
}

StoreReply Store::compare_set(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const Entry* entry = find(key);
    if (entry != nullptr && entry->is_queue()) return reply(Status::wrong_type);
    const bool matches = entry == nullptr ? !request.expected
                                          : request.expected && entry->value == *request.expected;
    if (matches) {
        if (StoreReply done = set(request); done.status != Status::ok) return done;
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
    if (entry != nullptr && entry->is_queue()) return reply(Status::wrong_type);
    const std::size_t size = (entry != nullptr ? entry->value.size() : 0) + bytes.size();
    if (size > kValueBytesMax) return refused("the value would be too large");
    if (!has_room(bytes.size() + (entry != nullptr ? 0 : key.size() + kEntryBytes))) return full();
    std::string value = entry != nullptr ? entry->value : std::string();
    value += bytes;
    put(key, std::move(value));
    return ok_number(size);
}

StoreReply Store::check(const StoreRequest& request) {
    return ok_bool(std::ranges::all_of(
        request.keys, [this](std::string_view key) { return find(key) != nullptr; }));
}

StoreReply Store::erase(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const auto found = entries_.find(key);
    if (found == entries_.end()) return ok_bool(false);
    bytes_ -= key.size() + found->second.value.size() + kEntryBytes;
    for (const std::string& item : found->second.items) bytes_ -= item.size() + kItemBytes;
    const std::string name = found->first;
    entries_.erase(found);
    ++revision_;
    if (journal_ != nullptr) journal_->erased(name);
    changed(name);
    return ok_bool(true);
}

StoreReply Store::multi_set(const StoreRequest& request) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
        const Entry* entry = find(request.keys[i]);
        if (entry != nullptr && entry->is_queue()) return reply(Status::wrong_type);
        bytes += request.keys[i].size() + request.values[i].size() + kEntryBytes;
    }
    if (!has_room(bytes)) return full();
    for (std::size_t i = 0; i < request.keys.size(); ++i)
        put(request.keys[i], std::string(request.values[i]));
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

StoreReply Store::push(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const std::string_view value = request.values.front();
    const auto found = entries_.find(key);
    const bool exists = found != entries_.end();
    if (exists && !found->second.is_queue()) return reply(Status::wrong_type);
    const std::size_t bytes = value.size() + kItemBytes + (exists ? 0 : key.size() + kEntryBytes);
    if (!has_room(bytes)) return full();
    const auto entry = exists ? found : entries_.emplace(key, Entry{}).first;
    bytes_ += bytes;
    Entry& queue = entry->second;
    queue.items.emplace_back(value);
    queue.revision = ++revision_;
    const std::uint64_t item = queue.first_item + queue.items.size() - 1;
    const std::uint64_t length = queue.items.size();
    if (journal_ != nullptr) journal_->item_pushed(key, item, value, revision_);
    changed(key);
    return ok_number(length);
}

StoreReply Store::length(const StoreRequest& request) {
    const Entry* entry = find(request.keys.front());
    if (entry != nullptr && !entry->is_queue()) return reply(Status::wrong_type);
    return ok_number(entry != nullptr ? entry->items.size() : 0);
}

StoreReply Store::count(const StoreRequest&) {
    return ok_number(entries_.size());
}

void Store::put(std::string_view key, std::string value) {
    const auto found = entries_.find(key);
    const bool exists = found != entries_.end();
    const auto entry = exists ? found : entries_.emplace(key, Entry{}).first;
    bytes_ += value.size();
    bytes_ += exists ? 0 : key.size() + kEntryBytes;
    bytes_ -= entry->second.value.size();
    entry->second.value = std::move(value);
    entry->second.revision = ++revision_;
    if (journal_ != nullptr) journal_->value_set(key, entry->second.value, revision_);
    changed(key);
}

std::string Store::pop_item(Entries::iterator entry) {
    Entry& queue = entry->second;
    std::string value = std::move(queue.items.front());
    queue.items.pop_front();
    queue.revision = ++revision_;
    bytes_ -= value.size() + kItemBytes;
    if (journal_ != nullptr) journal_->item_popped(entry->first, queue.first_item, revision_);
    ++queue.first_item;
    if (queue.items.empty()) {
        bytes_ -= entry->first.size() + kEntryBytes;
        entries_.erase(entry);
    }
    return value;
}

/// Tries to answer a request that may wait.
/// \param[in,out] at  index of the key to check first; on return that of a missing key
template <class Keys>
std::optional<StoreReply> Store::try_waiting(Op op, const Keys& keys, std::size_t& at,
                                             std::uint64_t revision) {
    const auto missing = [&](std::size_t from) {
        while (from < keys.size() && find(keys[from]) != nullptr) ++from;
        return from;
    };
    if (op == Op::watch) {
        const Entry* entry = find(keys.front());
        const std::uint64_t now = entry != nullptr ? entry->revision : 0;
        if (now == revision) return std::nullopt;
        return ok(2, [&](PackWriter& out) {
            out.uint(now);
            if (entry != nullptr && !entry->is_queue())
                out.bin(entry->value);
            else
                out.nil();
        });
    }
    at = missing(at);
    if (at == keys.size()) at = missing(0);  // an earlier key may have been erased meanwhile
    if (at < keys.size()) return std::nullopt;
    if (op == Op::wait) return reply(Status::ok);
    if (op == Op::pop) {
        const auto entry = entries_.find(keys.front());
        if (!entry->second.is_queue()) return reply(Status::wrong_type);
        const std::string value = pop_item(entry);
        StoreReply made = ok(1, [&](PackWriter& out) { out.bin(value); });
        changed(keys.front());
        return made;
    }
    std::size_t bytes = 0;
    for (const auto& key : keys) {
        const Entry* entry = find(key);
        if (entry->is_queue()) return reply(Status::wrong_type);
        bytes += entry->value.size() + 5;
    }
    if (bytes > kValueBytesMax + 5) return refused("the values together are too large");
    if (op == Op::get) return ok(1, [&](PackWriter& out) { out.bin(find(keys.front())->value); });
    return ok(1, [&](PackWriter& out) {
        out.array(static_cast<std::uint32_t>(keys.size()));
        for (const auto& key : keys) out.bin(find(key)->value);
    });
}

std::optional<StoreReply> Store::wait_for(Token token, const StoreRequest& request, Deadline now) {
    std::size_t at = 0;
    if (auto done = try_waiting(request.op, request.keys, at, request.number)) return done;
    if (request.timeout_ms == 0)
        return reply(request.op == Op::watch || request.op == Op::wait ? Status::timed_out
                                                                       : Status::not_found);
    if (waiters_.size() >= limits_.waiters_max) return refused("too many requests wait");
    const Deadline deadline = request.timeout_ms >= kForeverMs
                                  ? Deadline::max()
                                  : now + std::chrono::milliseconds(request.timeout_ms);
    Waiter waiter{request.op, {}, at, request.number, deadline};
    waiter.keys.assign(request.keys.begin(), request.keys.end());
    const std::size_t bytes = bytes_of(waiter);
    if (!has_room(bytes)) return full();
    const auto [placed, fresh] = waiters_.try_emplace(token, std::move(waiter));
    if (!fresh) return refused("this request waits already");
    waiting_bytes_ += bytes;
    waiting_for_[placed->second.keys[at]].push_back(token);
    if (deadline != Deadline::max()) deadlines_.emplace(deadline, token);
    return std::nullopt;
}

/// Retries the requests that wait for `key`, oldest first.
void Store::changed(std::string_view key) {
    if (waiters_.empty()) return;
    const auto found = waiting_for_.find(std::string(key));
    if (found == waiting_for_.end()) return;
    const std::vector<Token> tokens = std::move(found->second);
    waiting_for_.erase(found);
    for (const Token& token : tokens) {
        const auto at = waiters_.find(token);
        if (at == waiters_.end()) continue;  // a nested changed() has answered it
        Waiter& waiter = at->second;
        if (const auto done = try_waiting(waiter.op, waiter.keys, waiter.at, waiter.revision)) {
            deadlines_.erase({waiter.deadline, token});
            waiting_bytes_ -= bytes_of(waiter);
            waiters_.erase(at);
            answer_(token, *done);
        } else {
            waiting_for_[waiter.keys[waiter.at]].push_back(token);
        }
    }
}

Store::Waiters::iterator Store::remove(Waiters::iterator waiter) {
    deadlines_.erase({waiter->second.deadline, waiter->first});
    const auto key = waiting_for_.find(waiter->second.keys[waiter->second.at]);
    std::erase(key->second, waiter->first);
    if (key->second.empty()) waiting_for_.erase(key);
    waiting_bytes_ -= bytes_of(waiter->second);
    return waiters_.erase(waiter);
}

bool Store::cancel(Token token) {
    const auto waiter = waiters_.find(token);
    if (waiter == waiters_.end()) return false;
    remove(waiter);
    answer_(token, reply(Status::cancelled));
    return true;
}

void Store::forget(Token token) {
    if (const auto waiter = waiters_.find(token); waiter != waiters_.end()) remove(waiter);
}

void Store::expire(Deadline now) {
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
        const Token token = deadlines_.begin()->second;
        remove(waiters_.find(token));
        answer_(token, reply(Status::timed_out));
    }
}

std::size_t Store::bytes_of(const Waiter& waiter) {
    std::size_t bytes = kEntryBytes;
    for (const std::string& key : waiter.keys) bytes += key.size();
    return bytes;
}

Deadline Store::next_deadline() const {
    return deadlines_.empty() ? Deadline::max() : deadlines_.begin()->first;
}

void Store::answer_all(const StoreReply& answer) {
    const Waiters waiters = std::exchange(waiters_, {});
    waiting_bytes_ = 0;
    waiting_for_.clear();
    deadlines_.clear();
    for (const auto& [token, waiter] : waiters) answer_(token, answer);
}

void Store::restore_value(std::string key, std::string value, std::uint64_t revision) {
    bytes_ += key.size() + value.size() + kEntryBytes;
    revision_ = std::max(revision_, revision);
    entries_[std::move(key)] = Entry{std::move(value), {}, 0, revision};
}

void Store::restore_item(std::string key, std::uint64_t item, std::string value,
                         std::uint64_t revision) {
    const auto [entry, fresh] = entries_.try_emplace(std::move(key));
    bytes_ += value.size() + kItemBytes + (fresh ? entry->first.size() + kEntryBytes : 0);
    if (fresh) entry->second.first_item = item;
    entry->second.items.push_back(std::move(value));
    entry->second.revision = std::max(entry->second.revision, revision);
    revision_ = std::max(revision_, revision);
}

}  // namespace dtrun
