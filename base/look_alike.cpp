#include "base/look_alike.h"

#include "base/strings.h"
#include "base/utf8.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun {
namespace {

constexpr std::size_t kShownBytesMax = 300;

/// The character that a sequence of `length` bytes, which is valid, stands for.
unsigned code_point(std::string_view sequence, std::size_t length) {
    if (length == 1) return static_cast<unsigned char>(sequence[0]);
    unsigned code = static_cast<unsigned char>(sequence[0]) & (0xFFu >> (length + 1));
    for (std::size_t i = 1; i < length; ++i)
        code = code << 6 | (static_cast<unsigned char>(sequence[i]) & 0x3Fu);
    return code;
}

/// The keyboard's character, '\0' for what takes no room; nothing: it looks like none of them.
std::optional<char> plain_of(unsigned code) {
    constexpr unsigned kFullWidth = 0xFF00;  // from U+FF01 on they are in the order of ASCII
    if (code > kFullWidth && code <= kFullWidth + ('~' - ' '))
        return static_cast<char>(code - kFullWidth + ' ');
    const bool is_dash = (code >= 0x2010 && code <= 0x2015) || code == 0x2212 || code == 0xFE63;
    if (is_dash) return '-';
    const bool is_blank = code == 0xA0 || code == 0x3000 || code == 0x202F || code == 0x205F ||
                          (code >= 0x2000 && code <= 0x200A);
    if (is_blank) return ' ';
    const bool is_nothing =
        code == 0xAD || code == 0xFEFF || code == 0x2060 || (code >= 0x200B && code <= 0x200F);
    if (is_nothing) return '\0';
    switch (code) {
        case 0x2018:
        case 0x2019:
        case 0x201B:
            return '\'';
        case 0x201C:
        case 0x201D:
        case 0x201F:
            return '"';
        case 0x3001:  // 、
        case 0xFE50:
            return ',';
        case 0x3002:  // 。
            return '.';
        case 0xFE55:
        case 0x2236:
            return ':';
        default:
            return std::nullopt;
    }
}

}  // namespace

std::optional<LookAlike> find_look_alike(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        if ((text[at] & 0x80) == 0) {  // nearly all of a hostfile
            ++at;
            continue;
        }
        const std::size_t length = std::max<std::size_t>(utf8_length(text.substr(at)), 1);
        if (length > 1)
            if (const auto plain = plain_of(code_point(text.substr(at), length)))
                return LookAlike{at, length, *plain};
        at += length;
    }
    return std::nullopt;
}

std::string with_plain_characters(std::string_view text) {
    std::string plain;
    while (const auto found = find_look_alike(text)) {
        plain += text.substr(0, found->begin);
        if (found->plain != '\0') plain += found->plain;
        text.remove_prefix(found->begin + found->size);
    }
    return plain.append(text);
}

std::string look_alike_hint(std::string_view text) {
    const auto found = find_look_alike(text);
    if (!found) return {};
    const std::string_view sign = text.substr(found->begin, found->size);
    const unsigned code = code_point(sign, found->size);
    const std::string plain = escaped(trim(with_plain_characters(text)), kShownBytesMax);
    if (found->plain == '\0')
        return fmt::format("a character that cannot be seen, U+{:04X}, is in it; write {}", code,
                           plain);
    if (found->plain == ' ')
        return fmt::format("a blank in it is not the keyboard's but U+{:04X}; write {}", code,
                           plain);
    return fmt::format("{} is not the keyboard's {}; write {}", sign, found->plain, plain);
}

}  // namespace dtrun
