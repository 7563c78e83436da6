#pragma once

#include "base/numbered.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::agent {

/// The value of CUDA_VISIBLE_DEVICES (or HIP's) for a process that joins others on its host, such that the
/// device whose index is its local rank is that of its place.
///
/// Processes that live on keep their devices when they get other local ranks. A program that takes the device
/// of its local rank would share one of theirs.
/// \param inherited  the value that the process would have; unset: all devices
/// \param devices    how many there are at least: one for each place
/// \return nothing if its place and its local rank are the same, or a list that it would have is too short
std::optional<std::string> visible_devices(SlotIndex place, std::uint32_t local_rank,
                                           std::optional<std::string_view> inherited,
                                           std::uint32_t devices);

/// Whether this machine has accelerators, by their device files.
bool has_accelerators();

}  // namespace dtrun::agent
