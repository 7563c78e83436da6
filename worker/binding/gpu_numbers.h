#pragma once

#include "worker/binding/machine.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::binding {

/// Value of an environment variable; nothing: unset.
using Variable = std::function<std::optional<std::string_view>(std::string_view name)>;

/// Which of a machine's GPUs a program sees, in its order: by CUDA_VISIBLE_DEVICES or HIP's, numbers or
/// UUIDs. Where Slurm lets a step see its own devices only, their numbers start from 0, and SLURM_STEP_GPUS has
/// those of the machine.
/// \param uuid_of  the UUID of a GPU by its PCI address; empty: not known
/// \return indices of machine.gpus; empty: all, or what is named is not known
std::vector<std::size_t> visible_gpus(
    const Machine& machine, const Variable& variable,
    const std::function<std::string(const std::string&)>& uuid_of);

/// The UUID by which NVIDIA's driver knows a GPU, from /proc. \param pci  "0000:65:00.0"
std::string nvidia_uuid(const std::string& pci);

}  // namespace dtrun::binding
