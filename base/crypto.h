#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace dtrun {

/// The bytes of a text, which the caller keeps.
inline std::span<const std::uint8_t> as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const std::uint8_t> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

using Sha256 = std::array<std::uint8_t, 32>;

/// FIPS 180-4.
Sha256 sha256(std::string_view bytes);

/// HMAC-SHA256 (RFC 2104) over the parts one after the other.
Sha256 hmac_sha256(std::span<const std::uint8_t> key,
                   std::initializer_list<std::span<const std::uint8_t>> parts);

/// Compares in a time that does not depend on where they differ.
bool equal_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

}  // namespace dtrun
