#pragma once

#include "base/result.h"
#include "rendezvous/wire/msgpack.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace dtrun {

/// What a frame carries; messages.def says who sends which to whom.
enum class FrameType : std::uint8_t {
#define DTRUN_FRAME(name, number, from_to, meaning) name = number,
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) name = number,
#include "rendezvous/wire/messages.def"
};

/// Every frame: u32 payload bytes, u8 type, three zero bytes; big-endian; then the payload.
struct FrameHeader {
    static constexpr std::size_t kBytes = 8;
    /// Larger announcements end the connection before anything is allocated.
    static constexpr std::uint32_t kPayloadBytesMax = 16u << 20;

    FrameType type{};
    std::uint32_t payload_bytes = 0;
};

std::array<char, FrameHeader::kBytes> encode_header(const FrameHeader& header);
/// A frame as it is sent.
Bytes whole_frame(FrameType type, std::string_view payload);

/// Errc: invalid_input for a payload above kPayloadBytesMax, type 0, or non-zero reserved bytes.
/// \param bytes  at least FrameHeader::kBytes
Result<FrameHeader> decode_header(std::string_view bytes);

/// Bytes that several connections send.
using SharedBytes = std::shared_ptr<const Bytes>;

/// One whole frame; `payload` must be at most kPayloadBytesMax.
Bytes encode_frame(FrameType type, std::string_view payload);

/// What a whole frame carries.
inline std::string_view payload_of(const Bytes& frame) {
    return std::string_view(frame).substr(FrameHeader::kBytes);
}

struct FrameView {
    FrameType type{};
    std::string_view payload;
};

/// Cuts frames off a growing buffer.
/// \param[in,out] bytes  what was received and not yet used; a returned frame is removed from it and
///                       views into it
/// \return a frame, nothing if more bytes are needed, or invalid_input
Result<std::optional<FrameView>> next_frame(std::string_view& bytes);

}  // namespace dtrun
