// Queues of a store: items are pushed, and popped, or claimed and then acknowledged or given back.

#include "rendezvous/exchange/store.h"
#include "rendezvous/exchange/store_replies.h"

#include <algorithm>

namespace dtrun {

StoreReply Store::push(const StoreRequest& request) {
    const std::string_view key = request.keys.front();
    const std::string_view value = request.values.front();
    const Entry* entry = find(key);
    if (entry != nullptr && !entry->is_queue()) return reply(Status::wrong_type);
    if (!has_room(value.size() + kItemBytes + (entry != nullptr ? 0 : key.size() + kEntryBytes)))
        return full();
    return ok_number(push_item(key, value));
}

/// \return how many items nobody has claimed now
std::uint64_t Store::push_item(std::string_view key, std::string_view value) {
    const auto [entry, fresh] = entries_.try_emplace(std::string(key));
    if (fresh) {
        entry->second.queue = std::make_unique<Queue>();
        bytes_ += key.size() + kEntryBytes;
    }
    bytes_ += value.size() + kItemBytes;
    std::deque<Item>& items = entry->second.queue->items;
    items.push_back({++revision_, std::string(value)});
    entry->second.facts.revision = revision_;
    if (journal_ != nullptr) journal_->item_pushed(key, revision_, value, revision_);
    note(key, StoreHistory::Kind::queue);
    return items.size();
}

StoreReply Store::length(const StoreRequest& request) {
    const Entry* entry = find(request.keys.front());
    if (entry != nullptr && !entry->is_queue()) return reply(Status::wrong_type);
    return ok_number(entry != nullptr ? entry->queue->items.size() : 0);
}

/// Pops or claims the oldest item, if nobody has claimed it.
std::optional<StoreReply> Store::try_take(const StoreRequest& request, Token token) {
    const auto entry = entries_.find(request.keys.front());
    if (entry == entries_.end()) return std::nullopt;
    if (!entry->second.is_queue()) return reply(Status::wrong_type);
    Queue& queue = *entry->second.queue;
    if (queue.items.empty()) return std::nullopt;
    Item item = std::move(queue.items.front());
    queue.items.pop_front();
    ++revision_;
    if (request.op == Op::pop) {
        bytes_ -= item.value.size() + kItemBytes;
        if (journal_ != nullptr) journal_->item_popped(entry->first, item.number, revision_);
        queue_changed(entry);
        return ok(1, [&](PackWriter& out) { out.bin(item.value); });
    }
    auto made = ok(2, [&](PackWriter& out) { out.bin(item.value), out.uint(item.number); });
    const ItemClaim claim{request.owner, token};
    owned_[claim.owner].items.emplace(entry->first, item.number);
    queue.claimed[item.number] = {claim, std::move(item.value)};
    if (journal_ != nullptr) journal_->item_claimed(entry->first, item.number, claim, revision_);
    queue_changed(entry);
    return made;
}

/// The item that a request is about, if it is its owner's; nullptr: it is not.
Store::Claimed* Store::find_claimed(const StoreRequest& request) {
    const auto entry = entries_.find(request.keys.front());
    if (entry == entries_.end() || !entry->second.is_queue()) return nullptr;
    const auto item = entry->second.queue->claimed.find(request.number);
    if (item == entry->second.queue->claimed.end() || item->second.claim.owner != request.owner)
        return nullptr;
    return &item->second;
}

StoreReply Store::acknowledge(const StoreRequest& request) {
    const Claimed* item = find_claimed(request);
    if (item == nullptr) return ok_bool(false);
    const auto entry = entries_.find(request.keys.front());
    bytes_ -= item->value.size() + kItemBytes;
    disown_item(request.owner, entry->first, request.number);
    entry->second.queue->claimed.erase(request.number);
    ++revision_;
    if (journal_ != nullptr) journal_->item_popped(entry->first, request.number, revision_);
    queue_changed(entry);
    return ok_bool(true);
}

StoreReply Store::give_back(const StoreRequest& request) {
    if (find_claimed(request) == nullptr) return ok_bool(false);
    return_item(entries_.find(request.keys.front()), request.number);
    return ok_bool(true);
}

/// A claimed item takes its place among the others again.
void Store::return_item(Entries::iterator entry, std::uint64_t number) {
    Queue& queue = *entry->second.queue;
    const auto claimed = queue.claimed.extract(number);
    disown_item(claimed.mapped().claim.owner, entry->first, number);
    const auto at = std::ranges::lower_bound(queue.items, number, {}, &Item::number);
    queue.items.insert(at, Item{number, std::move(claimed.mapped().value)});
    ++revision_;
    if (journal_ != nullptr) journal_->item_claimed(entry->first, number, {}, revision_);
    queue_changed(entry);
}

/// With the last revision. An empty queue does not exist.
void Store::queue_changed(Entries::iterator entry) {
    entry->second.facts.revision = revision_;
    const std::string key = entry->first;
    const bool is_empty =
        entry->second.queue->items.empty() && entry->second.queue->claimed.empty();
    if (is_empty) {
        bytes_ -= key.size() + kEntryBytes;
        entries_.erase(entry);
    }
    note(key, is_empty ? StoreHistory::Kind::erased : StoreHistory::Kind::queue);
}

void Store::restore_item(std::string key, std::uint64_t number, std::string value,
                         const ItemClaim& claim) {
    const auto [entry, fresh] = entries_.try_emplace(std::move(key));
    bytes_ += value.size() + kItemBytes + (fresh ? entry->first.size() + kEntryBytes : 0);
    if (fresh) entry->second.queue = std::make_unique<Queue>();
    if (claim.owner == 0) {
        entry->second.queue->items.push_back({number, std::move(value)});
    } else {
        owned_[claim.owner].items.emplace(entry->first, number);
        entry->second.queue->claimed[number] = {claim, std::move(value)};
    }
    revision_ = std::max(revision_, number);
}

}  // namespace dtrun
