#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// Pieces between separators, empty ones included; one piece for empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Without spaces, tabs and line ends at both ends.
std::string_view trim(std::string_view text);

/// The whole text as a decimal number within [min, max], else nothing. No sign but '-', no spaces.
std::optional<long long> to_int(std::string_view text, long long min, long long max);

/// "a, b and c"; past `max` names: "a, b and 7 more".
std::string join_names(const std::vector<std::string>& names, std::size_t max = 8);

/// `text` cut to `bytes_max` bytes, with what a terminal or a log would obey shown as \xNN.
std::string escaped(std::string_view text, std::size_t bytes_max = 64);

/// Edit distance (Levenshtein), for "did you mean".
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Words as a POSIX shell would split them: blanks separate, quotes and backslash group; no
/// expansion of any kind. Nothing if a quote is left open.
std::optional<std::vector<std::string>> shell_words(std::string_view text);

/// `text` as one word for a POSIX shell.
std::string shell_quote(std::string_view text);

}  // namespace dtrun
