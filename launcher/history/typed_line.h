#pragma once

#include "base/result.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::history {

/// A command line as it was typed, behind `dtrun`, without what nobody should find on a disk.
struct TypedLine {
    std::vector<std::string> words;
    std::vector<std::size_t> hidden{};  ///< words that end in "NAME=", whose value is not kept

    bool operator==(const TypedLine&) const = default;
};

/// Leaves out the values of variables whose names look like those of secrets: of NAME=VALUE words before the program,
/// which -x NAME=VALUE has as well. Nothing is left of a line that has such a value in another way. \param program_words  how many words at the end are the program and its arguments
TypedLine without_secrets(std::vector<std::string> words, std::size_t program_words);

/// The words with values that `variable` has for what was left out. Errc: invalid_input (it has none; names it)
Result<std::vector<std::string>> with_secrets(
    const TypedLine& line,
    const std::function<std::optional<std::string>(std::string_view)>& variable);

/// As a shell takes it, "dtrun -np 4 …"; what was left out is "NAME=…".
std::string shell_text(const TypedLine& line);

}  // namespace dtrun::history
