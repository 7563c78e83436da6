#include "rendezvous/wire/request.h"

#include <cassert>

namespace dtrun {
namespace {

void put(Bytes& out, std::uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        out += static_cast<char>(value >> shift);
}

std::uint64_t get(std::string_view bytes, std::size_t at, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = at; i < at + width; ++i)
        value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
    return value;
}

Bytes start_frame(FrameType type, std::size_t header_bytes, std::size_t body_bytes) {
    assert(header_bytes + body_bytes <= FrameHeader::kPayloadBytesMax);
    const auto header =
        encode_header({type, static_cast<std::uint32_t>(header_bytes + body_bytes)});
    Bytes frame;
    frame.reserve(header.size() + header_bytes + body_bytes);
    frame.append(header.data(), header.size());
    return frame;
}

}  // namespace

Bytes encode_request(const RequestHeader& header, std::string_view arguments) {
    Bytes frame = start_frame(FrameType::request, RequestHeader::kBytes, arguments.size());
    put(frame, header.client, 8);
    put(frame, header.id, 8);
    put(frame, header.behind, 4);
    put(frame, static_cast<std::uint64_t>(header.op), 1);
    put(frame, 0, 3);
    frame += arguments;
    return frame;
}

Bytes encode_reply(const ReplyHeader& header, std::string_view results) {
    Bytes frame = start_frame(FrameType::reply, ReplyHeader::kBytes, results.size());
    put(frame, header.client, 8);
    put(frame, header.id, 8);
    put(frame, static_cast<std::uint64_t>(header.status), 1);
    put(frame, 0, 7);
    frame += results;
    return frame;
}

Result<RequestView> decode_request(std::string_view payload) {
    if (payload.size() < RequestHeader::kBytes)
        return fail(Errc::invalid_input, "request of {} bytes", payload.size());
    RequestView view;
    view.header.client = get(payload, 0, 8);
    view.header.id = get(payload, 8, 8);
    view.header.behind = static_cast<std::uint32_t>(get(payload, 16, 4));
    view.header.op = static_cast<Op>(get(payload, 20, 1));
    if (view.header.client == 0 || view.header.id == 0 || view.header.behind >= view.header.id ||
        get(payload, 21, 3) != 0)
        return fail(Errc::invalid_input, "malformed request");
    view.arguments = payload.substr(RequestHeader::kBytes);
    return view;
}

Result<ReplyView> decode_reply(std::string_view payload) {
    if (payload.size() < ReplyHeader::kBytes)
        return fail(Errc::invalid_input, "reply of {} bytes", payload.size());
    ReplyView view;
    view.header.client = get(payload, 0, 8);
    view.header.id = get(payload, 8, 8);
    view.header.status = static_cast<Status>(get(payload, 16, 1));
    if (get(payload, 17, 7) != 0) return fail(Errc::invalid_input, "malformed reply");
    view.results = payload.substr(ReplyHeader::kBytes);
    return view;
}

}  // namespace dtrun
