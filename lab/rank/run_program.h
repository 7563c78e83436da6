#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::lab::rank {

/// What a program writes to its standard output; nothing if it is not there, fails,
/// writes more than 16 MiB, or takes longer (then it is killed).
/// \param words  its name, looked for in PATH, and its arguments
std::optional<std::string> output_of(const std::vector<std::string>& words,
                                     std::chrono::milliseconds limit);

}  // namespace dtrun::lab::rank
