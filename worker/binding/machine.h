#pragma once

#include "worker/binding/cpu_list.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::binding {

/// A core with those of its hardware threads that may be used.
struct Core {
    CpuList cpus{};
    unsigned number = 0;  ///< among the cores of its socket, by place
    unsigned socket = 0;  ///< by place
    unsigned numa = 0;    ///< number that Linux gives the node
    unsigned l3 = 0;      ///< by place; its socket's number where there is no such cache
};

/// A GPU or a network adapter.
struct Device {
    std::string name{};  ///< of a GPU "0000:65:00.0", of an adapter "mlx5_0" or "eth0"
    CpuList near{};      ///< processors that it is attached to
    std::vector<std::uint64_t> path{};  ///< from the root of the machine: what it is plugged into
};

/// One host as far as binding needs it. Plain data.
struct Machine {
    std::vector<Core> cores{};    ///< by place, so that neighbours share caches
    std::vector<Device> gpus{};   ///< in PCI order, as the drivers number them
    std::vector<Device> nics{};   ///< InfiniBand's and its like before Ethernet's
    unsigned sockets = 0;         ///< of the whole machine
    unsigned numa_nodes = 0;      ///< of the whole machine
    bool is_this_machine = true;  ///< else it is read from a file or a text

    CpuList cpus() const;
};

/// The same machine with some of its processors only.
Machine restrict_to(Machine machine, const CpuList& cpus);

/// What Linux says of this machine, by hwloc, less what we may not use. HWLOC_XMLFILE and its like are
/// obeyed. Takes some 10 ms.
/// Errc: internal, invalid_input (nothing is left)
Result<Machine> read_machine();

/// A machine that does not exist. \param text  as of hwloc: "pack:2 numa:1 core:8 pu:2"
/// Errc: invalid_input
Result<Machine> synthetic_machine(const std::string& text);

/// A machine that `lstopo --of xml` has described. Errc: invalid_input
Result<Machine> machine_of_file(const std::string& path);

}  // namespace dtrun::binding
