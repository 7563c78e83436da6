#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::lab {

/// An object of JSON on one line: `JsonLine().add("bytes", 4).text()`.
class JsonLine {
public:
    /// Bytes that are no UTF-8 become U+FFFD.
    JsonLine& add(std::string_view key, std::string_view value);
    JsonLine& add(std::string_view key, const char* value) {
        return add(key, std::string_view(value));
    }
    /// null if it is not finite
    JsonLine& add(std::string_view key, double value);
    template <std::integral T>
    JsonLine& add(std::string_view key, T value) {
        if constexpr (std::same_as<T, bool>)
            return raw(key, value ? "true" : "false");
        else
            return raw(key, std::to_string(value));
    }
    /// \param json  a value, as it is to be written
    JsonLine& raw(std::string_view key, std::string_view json);
    JsonLine& add(std::string_view key, const std::string& value) {
        return add(key, std::string_view(value));
    }
    JsonLine& add(std::string_view key, const std::vector<JsonLine>& objects);
    JsonLine& add(std::string_view key,
                  const std::vector<std::pair<std::string, std::string>>& object);

    std::string text() const { return "{" + members_ + "}"; }

private:
    std::string members_;
};

}  // namespace dtrun::lab
