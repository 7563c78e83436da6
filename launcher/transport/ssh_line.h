#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::transport {

/// One line of a file of ssh's configuration, or where a file begins or ends.
struct SshLine {
    enum class Kind : std::uint8_t { setting, file, end_of_file };
    Kind kind{};
    std::string keyword;  ///< in lower case
    std::string rest;     ///< what stands behind it
    std::string place;    ///< "/root/.ssh/config:7"
    std::string mistake;  ///< why it cannot be read; empty: it can
};

inline constexpr std::string_view kSshBlanks = " \t\r";

/// Without those at its begin.
std::string_view without_blanks(std::string_view text);

/// The words of a line: blanks separate, quotes and backslash group, '#' before a word ends it. Nothing: a quote does
/// not end.
std::optional<std::vector<std::string>> words_of(std::string_view text);

/// Takes the keyword from a line, and the blanks and '=' behind it. \return it in lower case
std::string take_keyword(std::string_view& line);

}  // namespace dtrun::transport
