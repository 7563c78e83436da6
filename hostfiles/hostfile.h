#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <string>
#include <string_view>

namespace dtrun {

/// Reads a hostfile in any of these forms, mixed where that is unambiguous:
///   host slots=4 [max_slots=8]      Open MPI, Horovod, DeepSpeed (also max-slots=)
///   host:4                          MPICH
///   host                            one slot; repeated names add up, as from `srun hostname`
///   user@host ..., [::1]:4, n[01-16] slots=8
///   # comment, and blank lines
/// and YAML, or JSON with the same keys, as `dtrun hosts` writes it (recognised by content, see yaml_hostfile.h).
/// A host that is repeated gets the sum of its slots.
/// \param name  what messages call the file
/// \return the hosts in file order, at least one, or invalid_input "<name>:<line>:<column>: ..."
Result<HostList> parse_hostfile(std::string_view text, std::string_view name);

/// Reads a list of hosts that changes while a job runs, as a discovery script prints it: lines as in a hostfile,
/// without YAML, or none at all. A host that is repeated has the slots of its last mention, as with Horovod.
/// \param slots  of hosts whose line names no number
/// \return invalid_input "<name>:<line>:<column>: ..."
Result<HostList> parse_host_listing(std::string_view text, std::string_view name, int slots);

/// All of standard input, at most 64 MiB. Errc: invalid_input (more), internal
Result<std::string> read_standard_input();

/// Reads and parses `path`; "-" is standard input. Errc also: not_found, denied
Result<HostList> read_hostfile(const std::string& path);

}  // namespace dtrun
