#include "launcher/watch/fields.h"

namespace dtrun::watch {

namespace json = boost::json;

std::string_view text_of(const json::object& object, std::string_view name) {
    const json::value* const found = object.if_contains(name);
    return found != nullptr && found->is_string() ? std::string_view(found->get_string())
                                                  : std::string_view();
}

std::optional<double> number_of(const json::object& object, std::string_view name) {
    const json::value* const found = object.if_contains(name);
    if (found == nullptr || !found->is_number()) return std::nullopt;
    return found->to_number<double>();
}

std::int64_t whole(const json::object& object, std::string_view name) {
    return static_cast<std::int64_t>(number_of(object, name).value_or(0));
}

const json::array& list_of(const json::object& object, std::string_view name) {
    static const json::array kNone;
    const json::value* const found = object.if_contains(name);
    return found != nullptr && found->is_array() ? found->get_array() : kNone;
}

const json::object& object_of(const json::value& item) {
    static const json::object kNone;
    return item.is_object() ? item.get_object() : kNone;
}

}  // namespace dtrun::watch
