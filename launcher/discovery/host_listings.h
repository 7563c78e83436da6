#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::discovery {

/// What lists of hosts, read one after the other, say of a job's hosts.
struct HostChanges {
    std::vector<Host> listed{};        ///< that are new, or have another number of slots
    std::vector<std::string> gone{};   ///< names of those that are not to be used any more
    std::vector<std::string> notes{};  ///< for the user, each a line
};

/// Compares the lists of hosts that a script prints, or that a file has, each time it is read. A pure state
/// machine.
///
/// Lists are written by other programs, which fail at times. So a host counts as gone only when it is missing
/// twice in a row, or when its agent is gone, too; and a list without any host is believed the third time.
class HostListings {
public:
    static constexpr int kMissing = 2;  ///< so often a host is not in the list
    static constexpr int kEmpty = 3;    ///< so often no host is in the list

    /// \param source  what the user calls it
    HostListings(std::string source, const HostList& first);

    /// \param has_agent  whether a host of this name answers
    HostChanges read(const HostList& list,
                     const std::function<bool(const std::string& name)>& has_agent);
    /// The list could not be read. \return what the user is told, if it is news
    std::optional<std::string> failed(const std::string& why);

private:
    struct Known {
        int slots = 0;
        int missing = 0;  ///< so many lists in a row
    };

    std::string source_;
    std::map<std::string, Known> known_;  ///< by name
    int empty_ = 0;                       ///< lists in a row
    bool failing_ = false;
};

}  // namespace dtrun::discovery
