#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// Where one rank is to run, as a rankfile says.
struct RankLine {
    std::string host;  ///< a name, or "+n2" for the third of the job's hosts
    std::string cpus;  ///< behind "slot=": processors in Open MPI's grammar, not read; empty: none

    bool operator==(const RankLine&) const = default;
};

/// Reads a rankfile in Open MPI's form: lines `rank 3=host slot=0-1`, of which `slot=` may be missing;
/// # comments, and blank lines. Ranks may stand in any order, each of 0..N-1 once.
/// \param name  what messages call the file
/// \return by rank, or invalid_input "<name>:<line>: ..."
Result<std::vector<RankLine>> parse_rankfile(std::string_view text, std::string_view name);

/// The host of each rank, an index into `hosts`. Without hosts the file's are added to them, in order
/// of their ranks, each with as many slots as it has ranks.
/// \return invalid_input, for a host that the job does not have
Result<std::vector<int>> hosts_of_ranks(const std::vector<RankLine>& ranks, HostList& hosts);

}  // namespace dtrun
