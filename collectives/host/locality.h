#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace dtrun::collectives {

/// The part of its machine that a rank is bound to, by the numbers that Linux gives; -1: to none, or none is known.
struct Locality {
    std::int32_t node = -1;    ///< NUMA node
    std::int32_t socket = -1;  ///< processor package
};

/// Where these processors are.
/// \param system  what sysfs has of the system
Locality locality_of(std::span<const unsigned> cpus, const std::string& system);

/// Where this thread may run; nothing where that is on all processors of the machine.
Locality own_locality(const std::string& system = "/sys/devices/system");

}  // namespace dtrun::collectives
