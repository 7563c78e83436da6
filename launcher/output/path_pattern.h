#pragma once

#include "base/result.h"

#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>

namespace dtrun::output {

/// So many characters of a job's id are shown; commands take any begin of it.
inline constexpr std::size_t kJobDigits = 12;

/// What the letters of a pattern stand for.
struct PathFacts {
    std::string job;     ///< %j
    std::time_t time{};  ///< %t, as 20261125-213006, local
};

bool is_path_pattern(std::string_view path);

/// Errc: invalid_input (a letter that stands for nothing)
Result<void> check_path_pattern(std::string_view path);

/// `path` in which %j, %t, %h (this machine's name) and %% are replaced.
/// \param path  that check_path_pattern() has no objection to
std::string expand_path_pattern(std::string_view path, const PathFacts& facts);

}  // namespace dtrun::output
