#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrun {

/// Bytes of the UTF-8 sequence that `text`, which is not empty, begins with; 0: it begins with none.
/// Overlong forms, surrogates and what is beyond Unicode are none (RFC 3629).
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);
/// With U+FFFD for each byte that is of no UTF-8 sequence, as readers of JSON refuse these.
std::string as_utf8(std::string_view text);

/// Bytes of the control character that `text`, which is not empty, begins with: one that a terminal could obey,
/// U+0080 to U+009F and these as single bytes among them; 0: it begins with none. '\n' and '\t' are none.
std::size_t control_length(std::string_view text);

/// A text of others without control characters, which could imitate other parts of a report or give orders to a
/// terminal: without colours, and with "?" for everything else. Line ends stay.
std::string printable(std::string_view text);
/// The same of a text that is to be one line: its line ends are "?", too.
std::string printable_line(std::string_view text);

}  // namespace dtrun
