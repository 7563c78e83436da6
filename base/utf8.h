#pragma once

#include <cstddef>
#include <string_view>

namespace dtrun {

/// Bytes of the UTF-8 sequence that `text`, which is not empty, begins with; 0: it begins with none.
/// Overlong forms, surrogates and what is beyond Unicode are none (RFC 3629).
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace dtrun
