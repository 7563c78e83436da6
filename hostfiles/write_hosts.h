#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <span>
#include <string>
#include <string_view>

namespace dtrun {

enum class HostFormat {
    deepspeed,  ///< `n1 slots=4`
    openmpi,    ///< `n1 slots=4`, also `user@n1` and `max_slots=8`
    mpich,      ///< `n1:4`
    horovod,    ///< `n1 slots=4`
    yaml,       ///< as yaml_hostfile.h reads it
    json,       ///< {"hosts":[{"host":"n1","slots":4}]}, with everything that is known of a host
    plain,      ///< `n1`: names alone
    nodelist,   ///< `n[1-4]`: names alone, on one line, in Slurm's notation
    ansible,    ///< an INI inventory with the group [dtrun]
};

struct NamedHostFormat {
    std::string_view name;  ///< "deepspeed"
    HostFormat format{};
};
std::span<const NamedHostFormat> host_formats();

/// Whether the format has a place for Host::address besides the name.
bool holds_addresses(HostFormat format);

/// A host list as text, with a line end at its end. parse_hostfile() reads back what deepspeed,
/// openmpi, mpich, horovod and yaml have, expand_nodelist() the names of nodelist.
///
/// What a format cannot say is an error, so that nothing is silently lost: the user, port, key or
/// address of a host, an IPv6 address as its name, or slots that a filter chose. Two exceptions:
/// plain, nodelist and ansible are lists of machines and never tell slots; max_slots, which only
/// dtrun knows, is left out where it has no place.
/// \return invalid_input "host 'n1': ..." with what to do
Result<std::string> write_hosts(const HostList& hosts, HostFormat format);

}  // namespace dtrun
