#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace dtrun::collectives {

/// "ranks 0-3, 7 and 12 more"
/// \param ranks  of the job, in the order in which they are named
std::string name_ranks(std::span<const std::uint32_t> ranks);

/// "rank 5 on s2, rank 7 on s3 and 12 more"
/// \param ranks  of a group. \param name  what one of them is called
std::string name_some(std::span<const std::uint32_t> ranks,
                      const std::function<std::string(std::uint32_t)>& name);

/// Writes lines to the job's error output, in one piece. They are dropped if nobody has made room there within a second.
void tell_user(std::span<const std::string> lines);

/// As tell_user(), of ranks that wait for others. The first time in a process a line more says that these may be busy.
void tell_user_who_waits(std::span<const std::string> lines);

}  // namespace dtrun::collectives
