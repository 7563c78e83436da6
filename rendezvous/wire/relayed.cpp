#include "rendezvous/wire/relayed.h"

#include <utility>

namespace dtrun {

Bytes encode_relayed(HostId host, FrameType type, std::string_view payload) {
    Bytes bytes;
    bytes.reserve(4 + FrameHeader::kBytes + payload.size());
    for (int shift = 24; shift >= 0; shift -= 8)
        bytes += static_cast<char>(std::to_underlying(host) >> shift);
    const auto header = encode_header({type, static_cast<std::uint32_t>(payload.size())});
    bytes.append(header.data(), header.size());
    bytes += payload;
    return bytes;
}

Result<RelayedView> decode_relayed(std::string_view payload) {
    if (payload.size() < 4) return fail(Errc::invalid_input, "relayed frame without a host");
    RelayedView view;
    std::uint32_t host = 0;
    for (std::size_t i = 0; i < 4; ++i) host = host << 8 | static_cast<std::uint8_t>(payload[i]);
    view.host = HostId{host};
    std::string_view inner = payload.substr(4);
    const auto frame = next_frame(inner);
    if (!frame) return std::unexpected(frame.error());
    if (!*frame || !inner.empty() || (*frame)->type == FrameType::relayed)
        return fail(Errc::invalid_input, "relayed frame without a frame");
    view.frame = **frame;
    return view;
}

}  // namespace dtrun
