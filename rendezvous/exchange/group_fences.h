#pragma once

#include "base/numbered.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/wire/exchange_messages.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace dtrun {

/// Fences of ranks that another launcher has numbered; each rank tells the size of its group.
///
/// Runs of such a program cannot be told apart by a name. A rank's arrival therefore counts only
/// while its connection lasts, and an outcome is repeated only to clients that were at the fence,
/// or, if it failed, to late ones when one of these is connected, or comes back: a later run sees
/// nothing of an earlier one. Pure.
class GroupFences {
public:
    using Key = std::tuple<std::string, std::string, std::uint64_t>;  ///< group, name, round
    /// How a fence has ended, and the clients that were at it.
    struct End {
        Fenced fenced;
        std::set<std::uint64_t> clients;
    };
    /// Sends outcomes to peers, and records them for clients that reconnect.
    class Events {
    public:
        virtual ~Events() = default;
        virtual void group_told(PeerId peer, const Fenced& fenced) = 0;
        virtual void group_ended(const Key& key, const End& end) = 0;
        virtual void group_forgotten(const Key& key) = 0;
    };

    explicit GroupFences(Events& events) : events_(events) {}

    /// A client has come over this connection, perhaps after another one broke. Who waits at a fence that
    /// has failed for this client, and could not be told while it was away, is told now.
    void add_peer(PeerId peer, std::uint64_t client);
    /// What is wrong about it fails this arrival only, as `invalid`.
    void from_peer(PeerId peer, const GroupFence& fence);
    /// Takes back arrivals over this connection; the client may arrive again over another.
    void remove_peer(PeerId peer);

    /// Restores a recorded outcome; to be called in the order of group_ended().
    void restore(const Key& key, End end) { remember(key, std::move(end)); }

private:
    struct Part {
        PeerId peer = 0;
        Rank rank{};
        std::vector<FenceEntry> entries;
    };
    struct Open {
        std::uint32_t ranks = 0;
        std::map<std::uint64_t, Part> parts;  ///< by client
    };
    struct Ended {
        End end;
        std::uint64_t number = 0;  ///< counts all ends, for order_
    };

    void refuse(PeerId peer, const Key& key, std::string why);
    bool told_again(const Key& key, PeerId peer, const GroupFence& fence);
    void supersede(const Key& key, Open& open, const GroupFence& fence);
    void end(const Key& key, Open open, std::string why, std::set<std::uint64_t> known);
    void remember(const Key& key, End end);

    Events& events_;
    std::map<Key, Open> open_;
    std::map<Key, Ended> ended_;  ///< the last end of each key, at most kEndedMax
    std::map<std::uint64_t, Key> order_;
    std::uint64_t ends_ = 0;
    std::size_t ended_bytes_ = 0;
    std::map<std::uint64_t, PeerId> present_;  ///< last peer of each connected client
    std::map<PeerId, std::uint64_t> clients_;  ///< client of each peer
};

}  // namespace dtrun
