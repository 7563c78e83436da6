#pragma once

#include "rendezvous/exchange.h"
#include "rendezvous/exchange_messages.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace dtrun {

/// Fences of ranks that another launcher has numbered, and that say themselves how many they are.
///
/// Runs of such a program cannot be told apart by a name. So a rank counts only while its connection
/// lasts, and how a fence has ended holds for those who were at it, and if it has failed for who comes
/// late as long as one of them is there: a later run finds nothing of an earlier one. Pure.
class GroupFences {
public:
    using Key = std::tuple<std::string, std::string, std::uint64_t>;  ///< group, name, round
    /// How a fence has ended, and for whom.
    struct End {
        Fenced fenced;
        std::set<std::uint64_t> clients;
    };
    /// What is to be told, and kept for whoever comes back.
    class Events {
    public:
        virtual ~Events() = default;
        virtual void group_told(PortId port, const Fenced& fenced) = 0;
        virtual void group_ended(const Key& key, const End& end) = 0;
        virtual void group_forgotten(const Key& key) = 0;
    };

    explicit GroupFences(Events& events) : events_(events) {}

    /// Errc: invalid_input (the port is to be closed)
    Result<void> from_port(PortId port, const GroupFence& fence);
    /// Whoever has come over this connection has not come; it may come again over another.
    void remove_port(PortId port);

    /// What was kept; in the order in which it was told.
    void restore(const Key& key, End end) { remember(key, std::move(end)); }

private:
    struct Part {
        PortId port = 0;
        std::uint32_t rank = 0;
        std::vector<FenceEntry> entries;
    };
    struct Open {
        std::uint32_t ranks = 0;
        std::map<std::uint64_t, Part> parts;  ///< by client
    };
    struct Ended {
        End end;
        std::uint64_t number = 0;  ///< of ends
    };

    bool told_again(const Key& key, PortId port, const GroupFence& fence);
    void supersede(const Key& key, Open& open, const GroupFence& fence);
    void end(const Key& key, Open open, std::string why);
    void remember(const Key& key, End end);

    Events& events_;
    std::map<Key, Open> open_;
    std::map<Key, Ended> ended_;  ///< the last of each key; only so many
    std::map<std::uint64_t, Key> order_;
    std::uint64_t ends_ = 0;
    std::size_t ended_bytes_ = 0;
    std::map<std::uint64_t, PortId> present_;  ///< clients, and where they came from last
    std::map<PortId, std::uint64_t> clients_;  ///< by port
};

}  // namespace dtrun
