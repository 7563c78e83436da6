#include "launcher/watch/json_line.h"

#include "base/json_writer.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <cmath>
#include <iterator>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

void write(const json::value& value, std::string& text) {
    switch (value.kind()) {
        case json::kind::null:
            text += "null";
            return;
        case json::kind::bool_:
            text += value.get_bool() ? "true" : "false";
            return;
        case json::kind::int64:
            text += std::to_string(value.get_int64());
            return;
        case json::kind::uint64:
            text += std::to_string(value.get_uint64());
            return;
        case json::kind::double_:
            if (std::isfinite(value.get_double()))
                fmt::format_to(std::back_inserter(text), "{}", value.get_double());
            else
                text += "null";
            return;
        case json::kind::string:
            text += json_text(value.get_string());
            return;
        case json::kind::array: {
            const char* before = "[";
            for (const json::value& item : value.get_array()) {
                text += before;
                write(item, text);
                before = ",";
            }
            text += value.get_array().empty() ? "[]" : "]";
            return;
        }
        case json::kind::object: {
            const char* before = "{";
            for (const auto& [name, item] : value.get_object()) {
                text += before;
                text += json_text(name);
                text += ':';
                write(item, text);
                before = ",";
            }
            text += value.get_object().empty() ? "{}" : "}";
            return;
        }
    }
}

}  // namespace

std::string json_line(const json::value& value) {
    std::string text;
    write(value, text);
    return text;
}

Result<json::object> parse_object(std::string_view text) {
    json::parse_options options;
    options.allow_invalid_utf8 = true;
    boost::system::error_code error;
    json::value value = json::parse({text.data(), text.size()}, error, {}, options);
    if (error) return fail(Errc::invalid_input, "{}", error.message());
    if (!value.is_object()) return fail(Errc::invalid_input, "not an object");
    return std::move(value.get_object());
}

}  // namespace dtrun::watch
