#pragma once

#include "base/numbered.h"
#include "base/result.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/message.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

// Messages with the bytes of ranks' standard streams, and credit for them.

namespace dtrun {

/// Which of a rank's two outputs.
enum class Stream : std::uint8_t { out, err };

struct OutputEnd {
    SlotIndex place{};
    Stream stream = Stream::out;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("place", m.place), f("stream", m.stream);
    }
};

struct Credit {
    std::uint64_t bytes = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("bytes", m.bytes);
    }
};

struct Input {
    std::string bytes;  ///< empty: end of input

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("bytes", m.bytes);
    }
};

struct InputCredit {
    std::uint64_t bytes = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("bytes", m.bytes);
    }
};

/// Header of the raw bytes in the payload of an `output` frame; big-endian, not
/// MessagePack, because the bytes behind it go from pipe to socket without passing through us.
struct OutputHeader {
    static constexpr std::size_t kBytes = 16;
    /// Limit of the bytes after it, so that other frames never wait long for one of these.
    static constexpr std::uint32_t kDataBytesMax = 256u << 10;

    SlotIndex place{};
    Stream stream = Stream::out;
    std::int64_t time_ns = 0;  ///< when the host read the bytes: ns since 1970 UTC
};

std::array<char, FrameHeader::kBytes + OutputHeader::kBytes> encode_output_header(
    const OutputHeader& header, std::uint32_t data_bytes);

struct OutputView {
    OutputHeader header;
    std::string_view data;
};

/// Errc: invalid_input
Result<OutputView> decode_output(std::string_view payload);

}  // namespace dtrun
