#pragma once
// Private to this folder: many mentions of hosts in, one list without repetitions out.

#include "base/result.h"
#include "hostfiles/host.h"
#include "hostfiles/name_pattern.h"
#include "hostfiles/scan.h"

#include <string>
#include <unordered_map>

namespace dtrun {

/// Collects hosts in order of first mention. Slots of a host that is mentioned again add up;
/// settings given once hold for all its mentions, and may not contradict each other.
class HostMerger {
public:
    /// Adds every host of `names` with the settings of `host` (its name is not used).
    /// \return invalid_input: contradiction, more than kHostsMax hosts or kSlotsMax slots
    Result<void> add(const NamePattern& names, const Host& host, const Place& place);

    HostList take() { return std::move(hosts_); }

private:
    struct Mention {
        std::size_t host = 0;  ///< index into hosts_
        std::size_t line = 0;
        std::size_t column = 0;
    };

    Result<void> merge(const Mention& first, const Host& again, const Place& place);

    HostList hosts_;
    std::unordered_map<std::string, Mention> first_;
    std::size_t mentions_ = 0;  ///< bounded too, so that a short text cannot cost much time
};

}  // namespace dtrun
