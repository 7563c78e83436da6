#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>

namespace dtrun::torch {

// What torch's clients send, as bytes.

template <class T>
std::string number(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

inline std::string text(std::string_view value) {
    return number<std::uint64_t>(value.size()) + std::string(value);
}

inline std::string texts(std::initializer_list<std::string_view> values) {
    std::string bytes;
    for (const std::string_view value : values) bytes += text(value);
    return bytes;
}

/// An operation with nothing but keys and values.
inline std::string op(int code, std::initializer_list<std::string_view> values = {}) {
    return std::string(1, static_cast<char>(code)) + texts(values);
}

/// One with a number behind.
inline std::string op(int code, std::string_view key, std::int64_t value) {
    return op(code, {key}) + number(value);
}

/// One with a list of `count` keys, or pairs.
inline std::string list(int code, std::uint64_t count,
                        std::initializer_list<std::string_view> values) {
    return op(code) + number(count) + texts(values);
}

inline const std::string kMagic("\xce\xf7\x85\x3c", 4);
inline const std::string kValidate = std::string(1, '\0') + kMagic;

}  // namespace dtrun::torch
