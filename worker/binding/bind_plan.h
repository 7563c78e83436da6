#pragma once

#include "rendezvous/wire/binding_request.h"
#include "worker/binding/machine.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::binding {

/// The processors of one place of a host, on which a rank with this local rank runs.
struct BoundPlace {
    CpuList cpus{};                    ///< never empty
    std::optional<std::size_t> gpu{};  ///< its GPU, of Machine::gpus
    std::uint32_t threads = 1;  ///< cores, shared with ranks that have the same ones; at least 1
};

struct BindPlan {
    bool bound = false;  ///< else every place has all processors, and nothing is to be set
    std::vector<BoundPlace> places{};  ///< [ranks]
    std::string note{};                ///< for the user; empty: all is as asked for
};

/// Gives processors to the ranks of a host.
///
/// Ranks go to the objects of `request.by` in turn, and each gets what `request.to` says, of what the fewest
/// have: as Open MPI does. Several cores of a rank are of one NUMA node wherever that can be. Equal shares are
/// of one size, so that some cores may be left over.
/// \param visible  which of the machine's GPUs the ranks see, in that order; empty: all
/// Errc: invalid_input, with the arithmetic, where cores are too few and may not be shared; where there is
/// no GPU to bind to
Result<BindPlan> plan_binding(const Machine& machine, const BindingRequest& request,
                              std::uint32_t ranks, const std::vector<std::size_t>& visible = {});

}  // namespace dtrun::binding
