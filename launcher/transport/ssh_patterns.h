#pragma once

#include <string>
#include <string_view>

namespace dtrun::transport {

/// In lower case, of ASCII only.
std::string lower(std::string_view text);

/// As ssh matches names: '*' is any text, '?' any character.
bool matches(std::string_view pattern, std::string_view name);

/// Whether any of the patterns, which commas separate, matches, and none that begins with '!'.
bool matches_any(std::string_view patterns, std::string_view name);

}  // namespace dtrun::transport
