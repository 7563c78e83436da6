#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun {

/// `text` as a JSON string, in quotes; bytes that are no UTF-8 become U+FFFD.
std::string json_text(std::string_view text);

/// Writes one JSON object in one line: `JsonWriter().add("bytes", 4).text()`. It only writes text;
/// Boost.JSON is used where a document is read or kept.
class JsonWriter {
public:
    /// \param digits  significant digits of floating-point numbers
    explicit JsonWriter(int digits = 12) : digits_(digits) {}

    JsonWriter& add(std::string_view key, std::string_view value);
    JsonWriter& add(std::string_view key, const char* value) {
        return add(key, std::string_view(value));
    }
    JsonWriter& add(std::string_view key, double value);  ///< null if it is not finite
    template <std::integral T>
    JsonWriter& add(std::string_view key, T value) {
        if constexpr (std::same_as<T, bool>)
            return raw(key, value ? "true" : "false");
        else
            return raw(key, std::to_string(value));
    }
    JsonWriter& add(std::string_view key, const std::vector<JsonWriter>& objects);
    /// An object of strings.
    JsonWriter& add(std::string_view key,
                    const std::vector<std::pair<std::string, std::string>>& object);
    /// \param json  a JSON value, written as it is
    JsonWriter& raw(std::string_view key, std::string_view json);

    std::string text() const { return "{" + members_ + "}"; }

private:
    std::string members_;
    int digits_;
};

}  // namespace dtrun
