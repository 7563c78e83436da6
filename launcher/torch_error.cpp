#include "launcher/torch_error.h"

#include "base/strings.h"

#include <boost/json.hpp>

namespace dtrun {

/// {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, ...}}}, or {"message": TEXT}.
std::optional<TorchError> parse_torch_error(std::string_view text) {
    boost::system::error_code error;
    const boost::json::value json = boost::json::parse(text, error);
    if (error || !json.is_object()) return std::nullopt;
    const boost::json::value* message = json.get_object().if_contains("message");
    TorchError found;
    if (message != nullptr && message->is_object()) {
        const boost::json::object& inner = message->get_object();
        if (const auto* extra = inner.if_contains("extraInfo"); extra && extra->is_object())
            if (const auto* stack = extra->get_object().if_contains("py_callstack");
                stack && stack->is_string())
                for (const std::string_view line : split(stack->get_string(), '\n'))
                    if (!line.empty()) found.traceback.emplace_back(line);
        message = inner.if_contains("message");
    }
    if (message == nullptr || !message->is_string()) return std::nullopt;
    found.message = message->get_string();
    return found;
}

}  // namespace dtrun
