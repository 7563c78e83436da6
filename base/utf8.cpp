#include "base/utf8.h"

#include <algorithm>

namespace dtrun {

std::size_t utf8_length(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    if (length == 0 || length > text.size()) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xC0) != 0x80) return 0;
    // Overlong forms, surrogates, beyond Unicode.
    if (length > 2 && ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
                       (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)))
        return 0;
    return length;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string as_utf8(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        result += length == 0 ? "\xef\xbf\xbd" : text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return result;
}

std::size_t control_length(std::string_view text) {
    const auto first = static_cast<unsigned char>(text.front());
    if (first < ' ' || first == 0x7F) return first == '\n' || first == '\t' ? 0 : 1;
    if (first >= 0x80 && first < 0xA0) return 1;  // the rest of no character
    const bool is_c1 =
        first == 0xC2 && text.size() > 1 && (static_cast<unsigned char>(text[1]) & 0xE0) == 0x80;
    return is_c1 ? 2 : 0;
}

namespace {

/// Bytes of the colour (SGR, such as "\x1b[1;31m") that `text` begins with; 0: none.
std::size_t color_length(std::string_view text) {
    if (!text.starts_with("\x1b[")) return 0;
    const std::size_t end = text.find_first_not_of("0123456789;:", 2);
    return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

}  // namespace

std::string printable(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
        const std::size_t color = color_length(text);
        const std::size_t control = color > 0 ? 0 : control_length(text);
        const std::size_t whole = std::max<std::size_t>(utf8_length(text), 1);
        if (control > 0)
            shown += '?';
        else if (color == 0)
            shown += text.substr(0, whole);
        text.remove_prefix(color > 0 ? color : control > 0 ? control : whole);
    }
    return shown;
}

std::string printable_line(std::string_view text) {
    std::string line = printable(text);
    std::ranges::replace(line, '\n', '?');
    return line;
}

}  // namespace dtrun
