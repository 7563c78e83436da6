#pragma once

#include "contracts/variables.h"

#include <cstddef>

namespace dtrun::contracts {

/// The devices that a rank sees of its node's, as a task of srun would by what Slurm was asked for: --gpu-bind
/// (SLURM_GPU_BIND, SLURM_TRES_BIND), else --gpus-per-task (SLURM_GPUS_PER_TASK, SLURM_TRES_PER_TASK) or
/// --ntasks-per-gpu (SLURM_NTASKS_PER_GPU). Of `closest` all are seen.
/// \param given  what the rank's environment has without this, with lists of all the node's devices
/// \param task   index on the node
/// \return lists that are shorter than those given; empty: the rank sees all
Variables devices_of_task(const Environment& given, std::size_t task);

}  // namespace dtrun::contracts
