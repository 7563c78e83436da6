#include "rendezvous/wire/frame.h"

#include <cassert>

namespace dtrun {

std::array<char, FrameHeader::kBytes> encode_header(const FrameHeader& header) {
    const std::uint32_t n = header.payload_bytes;
    return {static_cast<char>(n >> 24),
            static_cast<char>(n >> 16),
            static_cast<char>(n >> 8),
            static_cast<char>(n),
            static_cast<char>(header.type),
            0,
            0,
            0};
}

Result<FrameHeader> decode_header(std::string_view bytes) {
    assert(bytes.size() >= FrameHeader::kBytes);
    const auto at = [bytes](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
    FrameHeader header;
    for (std::size_t i = 0; i < 4; ++i) header.payload_bytes = header.payload_bytes << 8 | at(i);
    header.type = static_cast<FrameType>(at(4));
    if (header.payload_bytes > FrameHeader::kPayloadBytesMax)
        return fail(Errc::invalid_input, "frame of {} bytes, more than {}", header.payload_bytes,
                    FrameHeader::kPayloadBytesMax);
    if (at(4) == 0 || (at(5) | at(6) | at(7)) != 0)
        return fail(Errc::invalid_input, "malformed frame header");
    return header;
}

Bytes encode_frame(FrameType type, std::string_view payload) {
    assert(payload.size() <= FrameHeader::kPayloadBytesMax);
    const auto header = encode_header({type, static_cast<std::uint32_t>(payload.size())});
    Bytes frame;
    frame.reserve(header.size() + payload.size());
    frame.append(header.data(), header.size());
    frame += payload;
    return frame;
}

Result<std::optional<FrameView>> next_frame(std::string_view& bytes) {
    if (bytes.size() < FrameHeader::kBytes) return std::nullopt;
    const auto header = decode_header(bytes);
    if (!header) return std::unexpected(header.error());
    if (bytes.size() - FrameHeader::kBytes < header->payload_bytes) return std::nullopt;
    const FrameView frame{header->type, bytes.substr(FrameHeader::kBytes, header->payload_bytes)};
    bytes.remove_prefix(FrameHeader::kBytes + header->payload_bytes);
    return frame;
}

Bytes whole_frame(FrameType type, std::string_view payload) {
    const auto header = encode_header({type, static_cast<std::uint32_t>(payload.size())});
    Bytes frame(header.data(), header.size());
    frame += payload;
    return frame;
}

}  // namespace dtrun
