#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrun {

inline constexpr std::size_t kHelpColumns = 80;

/// The words of `text` in lines of at most `columns` (a longer word stands alone), each after
/// `indent` blanks and before '\n'.
std::string wrap(std::string_view text, std::size_t indent, std::size_t columns = kHelpColumns);

/// `left` after two blanks, and `right` in lines that begin after `middle` blanks: beside `left` if
/// two blanks stay free between them, else below it.
std::string two_columns(std::string_view left, std::string_view right, std::size_t middle,
                        std::size_t columns = kHelpColumns);

}  // namespace dtrun
