#pragma once

#include "rendezvous/wire/msgpack.h"

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Structs as MessagePack maps from field name to value, made from what their `fields` names. For
// source files that define messages; others use these files' encode() and decode().

namespace dtrun {

template <class T>
concept HasFields = requires(T& m) {
    T::fields(m, [](std::string_view, auto&) {});
};

inline void pack(PackWriter& out, bool value) {
    out.boolean(value);
}
inline void pack(PackWriter& out, const std::string& value) {
    out.str(value);
}
template <std::unsigned_integral T>
void pack(PackWriter& out, T value) {
    out.uint(value);
}
template <std::signed_integral T>
void pack(PackWriter& out, T value) {
    out.integer(value);
}
template <class T>
requires std::is_enum_v<T>
void pack(PackWriter& out, T value) {
    out.uint(static_cast<std::uint64_t>(value));
}
inline void pack(PackWriter& out, std::chrono::milliseconds value) {
    out.integer(value.count());
}
/// Nothing is nil.
template <class T>
void pack(PackWriter& out, const std::optional<T>& value) {
    if (value)
        pack(out, *value);
    else
        out.nil();
}
inline void pack(PackWriter& out, const std::pair<std::string, std::string>& value) {
    out.array(2);
    out.str(value.first);
    out.str(value.second);
}
template <HasFields T>
void pack(PackWriter& out, const T& message);
template <class T>
void pack(PackWriter& out, const std::vector<T>& items) {
    out.array(static_cast<std::uint32_t>(items.size()));
    for (const T& item : items) pack(out, item);
}
template <HasFields T>
void pack(PackWriter& out, const T& message) {
    std::uint32_t count = 0;
    T::fields(message, [&count](std::string_view, const auto&) { ++count; });
    out.map(count);
    T::fields(message, [&out](std::string_view name, const auto& value) {
        out.str(name);
        pack(out, value);
    });
}

/// At least as many bytes as pack() appends.
template <class T>
requires std::is_arithmetic_v<T> || std::is_enum_v<T>
constexpr std::size_t packed_bytes_max(T) {
    return 9;
}
constexpr std::size_t packed_bytes_max(std::chrono::milliseconds) {
    return 9;
}
template <class T>
std::size_t packed_bytes_max(const std::optional<T>& value) {
    return value ? packed_bytes_max(*value) : 1;
}
inline std::size_t packed_bytes_max(std::string_view text) {
    return 5 + text.size();
}
inline std::size_t packed_bytes_max(const std::pair<std::string, std::string>& value) {
    return 1 + packed_bytes_max(value.first) + packed_bytes_max(value.second);
}
template <HasFields T>
std::size_t packed_bytes_max(const T& message);
template <class T>
std::size_t packed_bytes_max(const std::vector<T>& items) {
    std::size_t bytes = 5;
    for (const T& item : items) bytes += packed_bytes_max(item);
    return bytes;
}
template <HasFields T>
std::size_t packed_bytes_max(const T& message) {
    std::size_t bytes = 5;
    T::fields(message, [&bytes](std::string_view name, const auto& value) {
        bytes += packed_bytes_max(name) + packed_bytes_max(value);
    });
    return bytes;
}

inline void unpack(PackReader& in, bool& value) {
    value = in.boolean();
}
inline void unpack(PackReader& in, std::string& value) {
    value = in.str();
}
template <std::integral T>
void unpack(PackReader& in, T& value) {
    if constexpr (std::unsigned_integral<T>) {
        const std::uint64_t wide = in.uint();
        if (wide > std::numeric_limits<T>::max()) return in.set_failed();
        value = static_cast<T>(wide);
    } else {
        const std::int64_t wide = in.integer();
        if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max())
            return in.set_failed();
        value = static_cast<T>(wide);
    }
}
template <class T>
requires std::is_enum_v<T>
void unpack(PackReader& in, T& value) {
    std::underlying_type_t<T> number{};
    unpack(in, number);
    value = static_cast<T>(number);
}
inline void unpack(PackReader& in, std::chrono::milliseconds& value) {
    value = std::chrono::milliseconds(in.integer());
}
template <class T>
void unpack(PackReader& in, std::optional<T>& value) {
    if (in.nil())
        value.reset();
    else
        unpack(in, value.emplace(T{}));  // clang 16 finds no default of a struct within a class
}
inline void unpack(PackReader& in, std::pair<std::string, std::string>& value) {
    if (in.array() != 2) return in.set_failed();
    value.first = in.str();
    value.second = in.str();
}
template <HasFields T>
void unpack(PackReader& in, T& message);
template <class T>
void unpack(PackReader& in, std::vector<T>& items) {
    const std::uint32_t count = in.array();
    items.clear();
    for (std::uint32_t i = 0; in.ok() && i < count; ++i) unpack(in, items.emplace_back());
}
template <HasFields T>
void unpack(PackReader& in, T& message) {
    const std::uint32_t count = in.map();
    for (std::uint32_t i = 0; in.ok() && i < count; ++i) {
        const std::string_view key = in.str();
        bool known = false;
        T::fields(message, [&](std::string_view name, auto& value) {
            if (known || name != key) return;
            known = true;
            unpack(in, value);
        });
        if (!known) in.skip();
    }
}

}  // namespace dtrun
