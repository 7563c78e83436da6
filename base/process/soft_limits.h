#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dtrun {

inline constexpr std::uint64_t kNoLimit = UINT64_MAX;

/// Names of the soft limits that ranks elsewhere get from the caller: "core", "memlock", "stack".
std::span<const std::string_view> forwarded_rlimits();

/// Our own soft limit, in bytes. Nothing: it has no such name, or cannot be read.
std::optional<std::uint64_t> soft_limit(std::string_view name);

/// Makes the caller's limit ours and that of our children, as far as our hard limit allows it. "core" is
/// taken as it is; the others are never lowered, as a log-in node may have less than a compute node.
/// Does nothing for a name that it does not know.
void set_forwarded_rlimit(std::string_view name, std::uint64_t value);

}  // namespace dtrun
