#pragma once
// Private to this folder: many mentions of hosts in, one list without repetitions out.

#include "base/result.h"
#include "hostfiles/host.h"
#include "hostfiles/name_pattern.h"
#include "hostfiles/scan.h"

#include <string_view>
#include <unordered_set>
#include <vector>

namespace dtrun {

/// Collects hosts in order of first mention. Slots of a host that is mentioned again add up;
/// settings given once hold for all its mentions, and may not contradict each other.
class HostMerger {
public:
    /// \param mentions  how many there may be, to reserve room; a guess is enough
    explicit HostMerger(std::size_t mentions);
    HostMerger(const HostMerger&) = delete;
    HostMerger& operator=(const HostMerger&) = delete;

    /// Adds every host of `names` with the settings of `host` (its name is not used).
    /// \return invalid_input: contradiction, more than kHostsMax hosts or kSlotsMax slots
    Result<void> add(const NamePattern& names, const Host& host, const Position& position);

    HostList take() { return std::move(hosts_); }

private:
    /// Where a host was first mentioned.
    struct Mention {
        std::size_t line = 0;
        std::size_t column = 0;
    };
    /// Compares indexes into hosts_ by name, so that names are stored once.
    struct NameHash {
        const HostList& hosts;
        std::size_t operator()(std::size_t host) const {
            return std::hash<std::string_view>()(hosts[host].name);
        }
    };
    struct NameEqual {
        const HostList& hosts;
        bool operator()(std::size_t a, std::size_t b) const {
            return hosts[a].name == hosts[b].name;
        }
    };

    Result<void> merge(std::size_t first, const Host& again, const Position& position);

    HostList hosts_;
    std::vector<Mention> first_;  ///< [hosts_.size()]
    std::unordered_set<std::size_t, NameHash, NameEqual> by_name_{0, NameHash{hosts_},
                                                                  NameEqual{hosts_}};
    std::size_t mentions_ = 0;  ///< bounded too, so that a short text cannot cost much time
};

}  // namespace dtrun
