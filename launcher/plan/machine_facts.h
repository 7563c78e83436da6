#pragma once

#include "launcher/plan/environment.h"
#include "launcher/plan/host_shape.h"

namespace dtrun::plan {

/// Counts what this machine has: NVIDIA GPUs by their device files, as far as CUDA_VISIBLE_DEVICES
/// shows them, processors this process may use, and NUMA nodes with processors.
MachineFacts machine_facts(EnvironmentView environment);

/// Whether an entry of CUDA_VISIBLE_DEVICES ends the list, as CUDA reads it: nothing, "-1", or Slurm's word for
/// a job without GPUs.
bool hides_devices(std::string_view device);

/// How many devices CUDA_VISIBLE_DEVICES leaves of `present`: its entries up to the first that
/// hides_devices(). Unset: all.
int visible_devices(int present, EnvironmentView environment);

}  // namespace dtrun::plan
