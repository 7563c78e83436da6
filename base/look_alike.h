#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun {

/// A character that looks like one of the keyboard's: web pages, word processors and input methods make them.
struct LookAlike {
    std::size_t begin = 0;  ///< of its first byte in the text
    std::size_t size = 0;   ///< in bytes
    char plain = '\0';      ///< the keyboard's; '\0': it cannot be seen
};

/// The first one of `text`: a full-width sign, letter or digit, a typographic quote, dash or blank, a comma or
/// stop of Chinese, or what takes no room. Nothing in a text of other letters.
std::optional<LookAlike> find_look_alike(std::string_view text);

/// `text` as the keyboard has it.
std::string with_plain_characters(std::string_view text);

/// What the first one of `text` is, and what to write: "： is not the keyboard's :; write s1:4". Empty: it has none.
std::string look_alike_hint(std::string_view text);

}  // namespace dtrun
