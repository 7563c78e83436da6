#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrun {

/// One machine as the user described it, and how many ranks may run on it.
struct Host {
    std::string name;              ///< without user, port, slots and IPv6's brackets
    int slots = 1;                 ///< 0..kSlotsMax; 0 keeps the host in the list without ranks
    std::optional<int> slots_max;  ///< limit under --oversubscribe (`max_slots=`)
    std::vector<int> slot_ids;     ///< chosen by a filter; empty means 0..slots-1
    std::string user;              ///< empty: ssh's own choice
    int port = 0;                  ///< 0: ssh's own choice
    std::string identity_file;     ///< private key; empty: ssh's own choice
    std::string address;           ///< where to connect if not to `name`; empty: the name

    bool operator==(const Host&) const = default;
};

using HostList = std::vector<Host>;

inline constexpr int kSlotsMax = 65'536;      ///< on one host
inline constexpr int kHostsMax = 1'000'000;   ///< in one list, each mention of a host counted
inline constexpr int kRanksMax = 16'777'216;  ///< in one job

}  // namespace dtrun
