// Requests that wait in a store for what others do.

#include "rendezvous/exchange/store.h"
#include "rendezvous/exchange/store_replies.h"

#include <algorithm>
#include <utility>

namespace dtrun {
namespace {

constexpr std::size_t kChangeBytes = 32;  // of one in an answer, besides its key and value

void pack(PackWriter& out, std::uint64_t revision, std::string_view key, StoreHistory::Kind kind,
          std::string_view value) {
    out.array(4);
    out.uint(revision);
    out.bin(key);
    if (kind == StoreHistory::Kind::value)
        out.bin(value);
    else
        out.nil();
    out.uint(static_cast<std::uint64_t>(kind));
}

/// The answer of a watch_prefix.
StoreReply changes_reply(std::uint64_t revision, bool is_complete, std::uint32_t count,
                         std::string_view packed) {
    StoreReply made = ok(3, [&](PackWriter& out) {
        out.uint(revision);
        out.boolean(is_complete);
        out.array(count);
    });
    made.results += packed;
    return made;
}

}  // namespace

/// Tries to answer a request that may wait.
/// \param[in,out] at  index of the key to check first; on return that of a missing key
std::optional<StoreReply> Store::try_waiting(const StoreRequest& request, std::size_t& at,
                                             Token token) {
    switch (request.op) {
        case Op::watch:
            return try_watch(request);
        case Op::watch_prefix:
            return try_watch_prefix(request);
        case Op::pop:
        case Op::claim:
            return try_take(request, token);
        case Op::lock:
            return try_lock(request, token);
        default:
            return try_read(request, at);
    }
}

std::optional<StoreReply> Store::try_watch(const StoreRequest& request) {
    const Entry* entry = find(request.keys.front());
    const std::uint64_t now = entry != nullptr ? entry->facts.revision : 0;
    if (now == request.number) return std::nullopt;
    return ok(2, [&](PackWriter& out) {
        out.uint(now);
        if (entry != nullptr && !entry->is_queue())
            out.bin(entry->value);
        else
            out.nil();
    });
}

std::optional<StoreReply> Store::try_read(const StoreRequest& request, std::size_t& at) {
    const auto& keys = request.keys;
    const auto missing = [&](std::size_t from) {
        while (from < keys.size() && find(keys[from]) != nullptr) ++from;
        return from;
    };
    at = missing(at);
    if (at == keys.size()) at = missing(0);  // an earlier key may have been erased meanwhile
    if (at < keys.size()) return std::nullopt;
    if (request.op == Op::wait) return reply(Status::ok);
    std::size_t bytes = 0;
    for (const auto& key : keys) {
        const Entry* entry = find(key);
        if (entry->is_queue()) return reply(Status::wrong_type);
        bytes += entry->value.size() + 5;
    }
    if (bytes > kValueBytesMax + 5) return refused("the values together are too large");
    if (request.op == Op::get)
        return ok(1, [&](PackWriter& out) { out.bin(find(keys.front())->value); });
    return ok(1, [&](PackWriter& out) {
        out.array(static_cast<std::uint32_t>(keys.size()));
        for (const auto& key : keys) out.bin(find(key)->value);
    });
}

/// Who knows a revision that is not in the history, or is of another store, gets all there is.
std::optional<StoreReply> Store::try_watch_prefix(const StoreRequest& request) {
    if (!history_) {
        revision_ = std::max<std::uint64_t>(revision_, 1);  // 0 is who knows nothing
        history_.emplace(revision_);
    }
    const std::string_view prefix = request.keys.front();
    if (request.number < history_->begin() || request.number > revision_ || request.number == 0)
        return all_under(prefix);
    Bytes packed;
    PackWriter out(packed);
    std::uint32_t count = 0;
    std::uint64_t last = revision_;
    for (auto at = history_->behind(request.number); at != history_->end(); ++at) {
        if (!at->key.starts_with(prefix)) continue;
        const std::size_t bytes = at->key.size() + at->value.size() + kChangeBytes;
        const bool is_full = count > 0 && packed.size() + bytes > kValueBytesMax;
        if (is_full || (request.limit != 0 && count == request.limit)) break;
        pack(out, at->revision, at->key, at->kind, at->value);
        last = at->revision;
        ++count;
    }
    if (count == 0) return std::nullopt;
    return changes_reply(last, false, count, packed);
}

void Store::forget_history() {
    if (history_) history_.emplace(revision_);
}

StoreReply Store::all_under(std::string_view prefix) const {
    Bytes packed;
    PackWriter out(packed);
    std::uint32_t count = 0;
    for (auto at = entries_.lower_bound(prefix);
         at != entries_.end() && at->first.starts_with(prefix); ++at) {
        const auto kind =
            at->second.is_queue() ? StoreHistory::Kind::queue : StoreHistory::Kind::value;
        pack(out, at->second.facts.revision, at->first, kind, at->second.value);
        ++count;
        if (packed.size() > kValueBytesMax)
            return refused("the values under this prefix are too large together");
    }
    return changes_reply(revision_, true, count, packed);
}

/// The answer when the time has passed.
StoreReply Store::too_late(const StoreRequest& request) const {
    // Nothing has changed up to now, which who watches need not look through again.
    if (request.op == Op::watch_prefix) return changes_reply(revision_, false, 0, {});
    return reply(Status::timed_out);
}

std::optional<StoreReply> Store::wait_for(Token token, const StoreRequest& request, Deadline now) {
    if (request.op == Op::lock &&
        !has_room(request.keys.front().size() + request.values.front().size() + kEntryBytes))
        return full();
    std::size_t at = 0;
    if (auto done = try_waiting(request, at, token)) return done;
    if (request.timeout_ms == 0) {
        const bool asks_for_values = request.op == Op::get || request.op == Op::multi_get ||
                                     request.op == Op::pop || request.op == Op::claim;
        return asks_for_values ? reply(Status::not_found) : too_late(request);
    }
    if (waiters_.size() >= limits_.waiters_max) return refused("too many requests wait");
    if (waiters_.contains(token)) return refused("this request waits already");
    const Deadline deadline = request.timeout_ms >= kForeverMs
                                  ? Deadline::max()
                                  : now + std::chrono::milliseconds(request.timeout_ms);
    Waiter waiter{{}, request, at, deadline};
    waiter.texts.assign(request.keys.begin(), request.keys.end());
    waiter.texts.insert(waiter.texts.end(), request.values.begin(), request.values.end());
    const std::size_t bytes = bytes_of(waiter);
    if (!has_room(bytes)) return full();
    const auto keys = waiter.texts.begin() + static_cast<std::ptrdiff_t>(request.keys.size());
    waiter.request.keys.assign(waiter.texts.begin(), keys);
    waiter.request.values.assign(keys, waiter.texts.end());
    waiting_bytes_ += bytes;
    lines_of(request.op).join(waiter.texts[at], token);
    if (deadline != Deadline::max()) deadlines_.emplace(deadline, token);
    if (request.owner != 0) owned_[request.owner].waiters.insert(token);
    waiters_.emplace(token, std::move(waiter));
    return std::nullopt;
}

WaitLines& Store::lines_of(Op op) {
    if (op == Op::lock) return for_locks_;
    if (op == Op::pop || op == Op::claim) return for_items_;
    return op == Op::watch_prefix ? for_prefixes_ : for_keys_;
}

/// Answers those for whom something has changed, oldest first, until nothing changes any more.
void Store::wake() {
    while (!changed_.empty()) {
        const std::string key = std::move(changed_.front());
        changed_.pop_front();
        hand_over(for_locks_, key);
        retry(for_keys_, key);
        hand_over(for_items_, key);
        const auto lengths = for_prefixes_.lengths();
        for (const auto& [length, names] : lengths)
            if (length <= key.size()) retry(for_prefixes_, std::string_view(key).substr(0, length));
    }
    told_ = revision_;
}

/// A lock that is free, or an item, goes to who has waited longest. If that one is not served nobody is.
void Store::hand_over(WaitLines& lines, const std::string& key) {
    for (auto token = lines.first(key); token; token = lines.first(key)) {
        const auto waiter = waiters_.find(*token);
        const auto done = try_waiting(waiter->second.request, waiter->second.at, *token);
        if (!done) return;
        end_wait(waiter, *done);
    }
}

void Store::retry(WaitLines& lines, std::string_view name) {
    for (const Token& token : lines.take(name)) {
        const auto at = waiters_.find(token);
        Waiter& waiter = at->second;
        // All that came before has been told.
        if (waiter.request.op == Op::watch_prefix)
            waiter.request.number = std::max(waiter.request.number, told_);
        if (const auto done = try_waiting(waiter.request, waiter.at, token)) {
            remove(at);
            answer_(token, *done);
        } else {
            lines.join(waiter.texts[waiter.at], token);
        }
    }
}

/// One that stands in no line any more.
void Store::remove(Waiters::iterator at) {
    const auto& [token, waiter] = *at;
    deadlines_.erase({waiter.deadline, token});
    waiting_bytes_ -= bytes_of(waiter);
    if (const std::uint64_t owner = waiter.request.owner; owner != 0) {
        owned_[owner].waiters.erase(token);
        let_go(owner);
    }
    waiters_.erase(at);
}

void Store::leave_line(const Waiters::value_type& waiter) {
    const auto& [token, waits] = waiter;
    lines_of(waits.request.op).leave(waits.texts[waits.at], token);
}

void Store::end_wait(Waiters::iterator waiter, const StoreReply& reply) {
    const Token token = waiter->first;
    leave_line(*waiter);
    remove(waiter);
    answer_(token, reply);
}

bool Store::cancel(Token token) {
    const auto waiter = waiters_.find(token);
    if (waiter == waiters_.end()) return false;
    end_wait(waiter, reply(Status::cancelled));
    return true;
}

void Store::forget(Token token) {
    const auto waiter = waiters_.find(token);
    if (waiter == waiters_.end()) return;
    leave_line(*waiter);
    remove(waiter);
}

/// Nobody is served what has lived for long enough, although expire() comes a little later.
void Store::erase_expired(Deadline now) {
    while (!expiries_.empty() && expiries_.begin()->first <= now)
        erase_entry(entries_.find(expiries_.begin()->second));
    wake();
}

void Store::expire(Deadline now) {
    erase_expired(now);
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
        const auto waiter = waiters_.find(deadlines_.begin()->second);
        end_wait(waiter, too_late(waiter->second.request));
    }
}

Deadline Store::next_deadline() const {
    Deadline next = deadlines_.empty() ? Deadline::max() : deadlines_.begin()->first;
    if (!expiries_.empty()) next = std::min(next, expiries_.begin()->first);
    return next;
}

std::size_t Store::bytes_of(const Waiter& waiter) {
    std::size_t bytes = kEntryBytes;
    for (const std::string& text : waiter.texts) bytes += text.size();
    return bytes;
}

void Store::answer_all(const StoreReply& answer) {
    while (!waiters_.empty()) end_wait(waiters_.begin(), answer);
}

}  // namespace dtrun
