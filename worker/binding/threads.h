#pragma once

#include "rendezvous/wire/binding_request.h"
#include "worker/binding/bind_plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::binding {

/// What OMP_NUM_THREADS is for the ranks of a host where the user does not say it.
struct Threads {
    std::vector<std::uint32_t>
        by_place{};  ///< empty: it is not set, and OpenMP takes all processors
    std::string why{};
};

/// Cores of a rank's binding; else what a scheduler has for each task; else, with several ranks, what the
/// request says or an equal part of the host's processors.
/// \param plan            nullptr: ranks are not bound
/// \param scheduler_cpus  for each task; 0: not known
/// \param cpus            usable_cpus() of the host's agent
/// \param ranks           that may run on the host at once
Threads threads_of_ranks(const BindingRequest& request, const BindPlan* plan,
                         std::uint32_t scheduler_cpus, std::uint32_t cpus, std::uint32_t ranks);

}  // namespace dtrun::binding
