#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::binding {

/// How many processors' time the cgroups of this process allow, as `docker --cpus` and limits of Kubernetes say it
/// (cpu.max, or cpu.cfs_quota_us); rounded up. Nothing: no limit.
/// \param root  where /proc and /sys are, for tests
std::optional<std::uint32_t> cpu_quota(const std::string& root = "");

/// Processors that this process may use, by its affinity and its quota; at least 1.
std::uint32_t usable_cpus();

}  // namespace dtrun::binding
