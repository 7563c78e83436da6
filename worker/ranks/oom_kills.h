#pragma once

#include <cstdint>
#include <string>

namespace dtrun::ranks {

/// How many processes the kernel's OOM killer has ended in the cgroup of this process: a limit of a batch
/// system's or a container's, or of the machine (memory.events of the nearest group that has it, or
/// memory.oom_control). Where no group tells, on the machine since boot; 0 if that is not told either.
/// \param root  where /proc and /sys are, for tests
std::uint64_t oom_kills(const std::string& root = "");

}  // namespace dtrun::ranks
