#pragma once

#include "worker/binding/machine.h"

#include <cstddef>
#include <optional>
#include <string>

namespace dtrun::binding {

/// "cpus 0-3 (socket 0 cores 0-3), NUMA node 0, GPU 0000:65:00.0, NIC mlx5_0", for people.
/// \param cpus  what a rank may use
/// \param gpu   its GPU, of machine.gpus
std::string describe_place(const Machine& machine, const CpuList& cpus,
                           std::optional<std::size_t> gpu);

/// NUMA nodes of which it has cores, by the numbers of Linux, ascending.
CpuList numa_nodes_of(const Machine& machine, const CpuList& cpus);

/// The network adapter that shares most of the way from the root of the machine with a GPU, or, without one,
/// is attached to processors of these. \return nullptr: none is nearer than another, or there is none
const Device* nearest_nic(const Machine& machine, const CpuList& cpus,
                          std::optional<std::size_t> gpu);

}  // namespace dtrun::binding
