#pragma once

#include <cstddef>
#include <cstring>

namespace dtrun::collectives {

/// Copies what another processor has just written, which lies in its cache. For more than a few kilobytes the C
/// library has one instruction copy (`rep movsb`), which on some processors fetches such lines one after the other:
/// 256 KiB took 93 us, and 8 us as here, where several are on their way at a time (AMD Zen 3).
inline void copy_from_other(void* to, const void* from, std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    constexpr std::size_t kAhead = 512;
    auto* out = static_cast<std::byte*>(to);
    const auto* in = static_cast<const std::byte*>(from);
    if (out == in || bytes == 0) return;
    for (; bytes >= kLine; bytes -= kLine, in += kLine, out += kLine) {
        __builtin_prefetch(in + kAhead);  // may be beyond the end: it is no access
        std::byte line[kLine];
        std::memcpy(line, in, kLine);
        std::memcpy(out, line, kLine);
    }
    if (bytes > 0) std::memcpy(out, in, bytes);
}

}  // namespace dtrun::collectives
