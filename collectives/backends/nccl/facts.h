#pragma once

#include "collectives/backends/nccl/library.h"
#include "collectives/group.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::collectives::nccl {

/// What can be known of a host without NCCL; tests make one up.
struct HostView {
    std::function<std::string(const char* name)> environment;  ///< "" if it is not set
    std::string root;                                          ///< of the file system
};
HostView this_host();

/// The transports (roads) that NCCL says it has taken, each once: "P2P/CUMEM", "NET/IB/GDRDMA".
/// \param log  what it writes to NCCL_DEBUG_FILE with NCCL_DEBUG=INFO
std::vector<std::string> roads_of(std::string_view log);

/// Version, transport, and whether GPUDirect is used: by NCCL's own log if this process writes one,
/// else by what the host has and NCCL is told.
/// \param own     "host 0000:3b:00.0", as places() has it
/// \param others  places of other ranks; empty if unknown
GroupFacts nccl_facts(const NcclLibrary& library, const HostView& host, int device,
                      const std::string& own, std::span<const std::string> others);

}  // namespace dtrun::collectives::nccl
