#pragma once

#include "base/result.h"
#include "launcher/plan/job_plan.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::commands {

/// Which processors ranks will have, as far as this machine knows: other hosts decide for themselves.
struct PlannedBinding {
    struct Place {
        std::string cpus{};  ///< "0-3,8"
        std::string text{};  ///< the same with cores, NUMA node, GPU and NIC, for people
        std::vector<unsigned> numa_nodes{};
        std::optional<std::string> gpu{}, nic{};
    };
    std::string asked{};                   ///< "--bind-to core"; empty: nothing was asked for
    std::map<plan::SlotId, Place> here{};  ///< ranks of this machine, if something was
    bool elsewhere = false;                ///< whether there are others
    std::map<plan::SlotId, std::uint32_t> threads{};  ///< OMP_NUM_THREADS of ranks of this machine
    std::string threads_text{};  ///< the same for people; empty: dtrun does not set it
};

/// Errc: invalid_input (this machine has too few cores, or no GPU), internal
Result<PlannedBinding> plan_binding(const plan::JobSpec& spec);

}  // namespace dtrun::commands
