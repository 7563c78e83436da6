#include "rendezvous/exchange/group_fences.h"

#include "rendezvous/exchange/fence_table.h"

#include <algorithm>

namespace dtrun {
namespace {

/// How many ended fences are kept. A thread is at one fence at a time, so nobody asks for older
/// ones.
constexpr std::size_t kEndedMax = 4'096;
constexpr std::size_t kEndedBytesMax = 64u << 20;
constexpr std::size_t kEndedKept = 16;  // at least, whatever their size
constexpr std::size_t kOpenGroupsMax = 65'536;
constexpr std::size_t kTextBytesMax = 4'096;  // limit of the group's name and of `why`

Fenced fenced_of(const GroupFences::Key& key) {
    return {0, std::get<1>(key), std::get<2>(key), false, {}, {}};
}

/// \return what is wrong about it; empty: nothing
std::string mistake_of(const GroupFence& fence) {
    if (fence.name.empty() || fence.name.size() > Fence::kNameBytesMax)
        return fmt::format("a fence's name has 1 to {} bytes", Fence::kNameBytesMax);
    if (fence.client == 0 || fence.entries.size() > 1 || fence.why.size() > kTextBytesMax)
        return "malformed";
    if (fence.group.size() > kTextBytesMax)
        return fmt::format("the name of the run has {} bytes, more than {}", fence.group.size(),
                           kTextBytesMax);
    if (!is_below(fence.rank, fence.ranks))
        return fmt::format("there is no rank {} of {}", fence.rank, fence.ranks);
    if (entry_bytes(fence.entries) > Fence::kBytesMax) return kTooManyBytes;
    return {};
}

}  // namespace

void GroupFences::add_peer(PeerId peer, std::uint64_t client) {
    std::uint64_t& known = clients_[peer];
    if (known == client) return;
    if (known != 0) present_.erase(known);
    known = client;
    present_[client] = peer;
    for (auto at = open_.begin(); at != open_.end();) {
        const auto ended = ended_.find(at->first);
        if (ended == ended_.end() || ended->second.end.fenced.complete ||
            !ended->second.end.clients.contains(client)) {
            ++at;
            continue;
        }
        const Key key = at->first;
        Open open = std::move(at->second);
        at = open_.erase(at);
        end(key, std::move(open), ended->second.end.fenced.why, ended->second.end.clients);
    }
}

void GroupFences::from_peer(PeerId peer, const GroupFence& fence) {
    const Key key{fence.group, fence.name, fence.round};
    if (std::string mistake = mistake_of(fence); !mistake.empty())
        return refuse(peer, key, std::move(mistake));
    add_peer(peer, fence.client);
    if (told_again(key, peer, fence)) return;
    if (open_.size() >= kOpenGroupsMax && !open_.contains(key))
        return refuse(peer, key, "too many fences are open at once");
    Open& open = open_[key];
    if (open.parts.empty()) open.ranks = fence.ranks;
    if (open.ranks != fence.ranks)
        return refuse(peer, key,
                      fmt::format("rank {} says that there are {} ranks, others that there are {}",
                                  fence.rank, fence.ranks, open.ranks));
    supersede(key, open, fence);
    Part& part = open.parts[fence.client];
    part = {peer, fence.rank, fence.entries};
    for (FenceEntry& entry : part.entries) entry.rank = fence.rank;
    if (!fence.why.empty() || open.parts.size() == open.ranks)
        end(key, std::move(open_.extract(key).mapped()), fence.why, {});
}

/// A mistake fails the call of who makes it, and nothing else.
void GroupFences::refuse(PeerId peer, const Key& key, std::string why) {
    Fenced refused = fenced_of(key);
    refused.why = std::move(why);
    refused.invalid = true;
    events_.group_told(peer, refused);
}

/// Answers with a fence's known outcome: to a client that was at it, and to a late one if it failed
/// and one that was there is still connected. \return whether it has answered
bool GroupFences::told_again(const Key& key, PeerId peer, const GroupFence& fence) {
    const auto found = ended_.find(key);
    if (found == ended_.end()) return false;
    const auto& [fenced, clients] = found->second.end;
    const bool was_there = clients.contains(fence.client);
    const bool is_late =
        !fenced.complete && std::ranges::any_of(clients, [this](std::uint64_t client) {
            return present_.contains(client);
        });
    if (was_there || is_late) events_.group_told(peer, fenced);
    return was_there || is_late;
}

/// An arrival replaces another client's as the same rank: that one belongs to a run that has died.
void GroupFences::supersede(const Key& key, Open& open, const GroupFence& fence) {
    std::erase_if(open.parts, [&](const auto& other) {
        const auto& [client, part] = other;
        if (client == fence.client || part.rank != fence.rank) return false;
        Fenced lost = fenced_of(key);
        lost.why = fmt::format("another process has come as rank {}", fence.rank);
        events_.group_told(part.peer, lost);
        return true;
    });
}

/// \param why    why the fence failed; empty: all ranks have arrived
/// \param known  clients that have been told before
void GroupFences::end(const Key& key, Open open, std::string why, std::set<std::uint64_t> known) {
    End end;
    end.fenced = fenced_of(key);
    end.clients = std::move(known);
    for (auto& [client, part] : open.parts) {
        end.clients.insert(client);
        std::ranges::move(part.entries, std::back_inserter(end.fenced.entries));
    }
    if (why.empty() && entry_bytes(end.fenced.entries) > Fence::kBytesMax) why = kTooManyBytes;
    end.fenced.complete = why.empty();
    end.fenced.why = std::move(why);
    if (!end.fenced.complete) end.fenced.entries.clear();
    std::ranges::sort(end.fenced.entries, {}, &FenceEntry::rank);
    events_.group_ended(key, end);
    for (const auto& [client, part] : open.parts) events_.group_told(part.peer, end.fenced);
    remember(key, std::move(end));
}

void GroupFences::remember(const Key& key, End end) {
    Ended& last = ended_[key];
    ended_bytes_ -= entry_bytes(last.end.fenced.entries);
    order_.erase(last.number);
    last = {std::move(end), ++ends_};
    ended_bytes_ += entry_bytes(last.end.fenced.entries);
    order_[last.number] = key;
    while (ended_.size() > kEndedMax ||
           (ended_bytes_ > kEndedBytesMax && ended_.size() > kEndedKept)) {
        const Key oldest = order_.extract(order_.begin()).mapped();
        ended_bytes_ -= entry_bytes(ended_.at(oldest).end.fenced.entries);
        events_.group_forgotten(oldest);
        ended_.erase(oldest);
    }
}

void GroupFences::remove_peer(PeerId peer) {
    const auto client = clients_.extract(peer);
    if (client.empty()) return;
    if (present_[client.mapped()] == peer) present_.erase(client.mapped());
    for (auto at = open_.begin(); at != open_.end();) {
        std::erase_if(at->second.parts,
                      [peer](const auto& part) { return part.second.peer == peer; });
        at = at->second.parts.empty() ? open_.erase(at) : std::next(at);
    }
}

}  // namespace dtrun
