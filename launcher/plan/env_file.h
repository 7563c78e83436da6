#pragma once

#include "base/result.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::plan {

/// Reads the lines of an --env-file:
///   NAME=value                 blanks around the value dropped; " #" begins a comment
///   export NAME='value'        as written, over several lines if need be
///   NAME="value"               \n \t \r \" \\ \$ stand for one character; over several lines too
///   # comment, and blank lines
/// `$` and backquotes are ordinary characters: nothing is expanded. NAME is a letter or '_', then
/// letters, digits, '_', '.' and '-', and not one of dtrun's own (check_settable()).
/// \param name  what messages call the file
/// \return names and values in file order, repeated names included, or invalid_input
///         "<name>:<line>:<column>: ..."
Result<std::vector<std::pair<std::string, std::string>>> parse_env_file(std::string_view text,
                                                                        std::string_view name);

}  // namespace dtrun::plan
