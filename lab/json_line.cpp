#include "lab/json_line.h"

#include <fmt/format.h>
#include <cmath>

namespace dtrun::lab {

namespace {

/// How many bytes a character has that begins at text[at]; 0 if it is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || at + length > text.size()) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(at + i) & 0xc0) != 0x80) return 0;
    const unsigned char second = byte(at + 1);
    const bool too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool surrogate = first == 0xed && second >= 0xa0;
    return too_long || surrogate || (first == 0xf4 && second >= 0x90) ? 0 : length;
}

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = utf8_length(text, i);
        const char letter = text[i];
        if (length == 0)
            out += "\xef\xbf\xbd";
        else if (letter == '"' || letter == '\\')
            (out += '\\') += letter;
        else if (static_cast<unsigned char>(letter) < 0x20)
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
        else
            out += text.substr(i, length);
        i += length == 0 ? 1 : length;
    }
    return out + '"';
}

}  // namespace

JsonLine& JsonLine::raw(std::string_view key, std::string_view json) {
    if (!members_.empty()) members_ += ',';
    members_ += quoted(key);
    members_ += ':';
    members_ += json;
    return *this;
}

JsonLine& JsonLine::add(std::string_view key, std::string_view value) {
    return raw(key, quoted(value));
}

JsonLine& JsonLine::add(std::string_view key, double value) {
    return raw(key, std::isfinite(value) ? fmt::format("{:.12g}", value) : "null");
}

JsonLine& JsonLine::add(std::string_view key, const std::vector<JsonLine>& objects) {
    std::string array;
    for (const JsonLine& object : objects) array += (array.empty() ? "" : ",") + object.text();
    return raw(key, "[" + array + "]");
}

JsonLine& JsonLine::add(std::string_view key,
                        const std::vector<std::pair<std::string, std::string>>& object) {
    JsonLine members;
    for (const auto& [name, value] : object) members.add(name, value);
    return raw(key, members.text());
}

}  // namespace dtrun::lab
