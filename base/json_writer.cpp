#include "base/json_writer.h"

#include "base/utf8.h"

#include <fmt/format.h>
#include <cmath>

namespace dtrun {
namespace {

std::string escape(char letter) {
    switch (letter) {
        case '"':
            return "\\\"";
        case '\\':
            return "\\\\";
        case '\b':
            return "\\b";
        case '\f':
            return "\\f";
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        default:
            return fmt::format("\\u{:04x}", static_cast<unsigned char>(letter));
    }
}

}  // namespace

std::string json_text(std::string_view text) {
    std::string out = "\"";
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        const char letter = text.front();
        if (length == 0)
            out += "\xef\xbf\xbd";
        else if (length == 1 && (letter < ' ' || letter == '"' || letter == '\\' || letter == 0x7F))
            out += escape(letter);
        else if (length == 2 && control_length(text) == 2)
            out += escape(text[1]);  // U+0080 to U+009F, which a terminal may obey
        else
            out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out + '"';
}

JsonWriter& JsonWriter::raw(std::string_view key, std::string_view json) {
    if (!members_.empty()) members_ += ',';
    members_ += json_text(key);
    members_ += ':';
    members_ += json;
    return *this;
}

JsonWriter& JsonWriter::add(std::string_view key, std::string_view value) {
    return raw(key, json_text(value));
}

JsonWriter& JsonWriter::add(std::string_view key, double value) {
    return raw(key, std::isfinite(value) ? fmt::format("{:.{}g}", value, digits_) : "null");
}

JsonWriter& JsonWriter::add(std::string_view key, const std::vector<JsonWriter>& objects) {
    std::string array;
    for (const JsonWriter& object : objects) array += (array.empty() ? "" : ",") + object.text();
    return raw(key, "[" + array + "]");
}

JsonWriter& JsonWriter::add(std::string_view key,
                            const std::vector<std::pair<std::string, std::string>>& object) {
    JsonWriter members;
    for (const auto& [name, value] : object) members.add(name, value);
    return raw(key, members.text());
}

}  // namespace dtrun
