#include "rendezvous/wire/output_messages.h"

#include <algorithm>

namespace dtrun {

std::array<char, FrameHeader::kBytes + OutputHeader::kBytes> encode_output_header(
    const OutputHeader& header, std::uint32_t data_bytes) {
    std::array<char, FrameHeader::kBytes + OutputHeader::kBytes> bytes{};
    const auto frame = encode_header(
        {FrameType::output, static_cast<std::uint32_t>(OutputHeader::kBytes) + data_bytes});
    std::copy(frame.begin(), frame.end(), bytes.begin());
    const auto put = [&bytes](std::size_t at, std::uint64_t value, int width) {
        for (int i = 0; i < width; ++i)
            bytes[at + static_cast<std::size_t>(i)] =
                static_cast<char>(value >> (8 * (width - 1 - i)));
    };
    put(FrameHeader::kBytes, std::to_underlying(header.place), 4);
    put(FrameHeader::kBytes + 4, static_cast<std::uint64_t>(header.stream), 1);
    put(FrameHeader::kBytes + 8, static_cast<std::uint64_t>(header.time_ns), 8);
    return bytes;
}

Result<OutputView> decode_output(std::string_view payload) {
    if (payload.size() < OutputHeader::kBytes ||
        payload.size() > OutputHeader::kBytes + OutputHeader::kDataBytesMax)
        return fail(Errc::invalid_input, "output frame of {} bytes", payload.size());
    const auto get = [payload](std::size_t at, int width) {
        std::uint64_t value = 0;
        for (int i = 0; i < width; ++i)
            value =
                value << 8 | static_cast<std::uint8_t>(payload[at + static_cast<std::size_t>(i)]);
        return value;
    };
    OutputView view;
    view.header.place = static_cast<SlotIndex>(get(0, 4));
    view.header.stream = static_cast<Stream>(get(4, 1));
    view.header.time_ns = static_cast<std::int64_t>(get(8, 8));
    if (view.header.stream != Stream::out && view.header.stream != Stream::err)
        return fail(Errc::invalid_input, "output frame of stream {}", get(4, 1));
    view.data = payload.substr(OutputHeader::kBytes);
    return view;
}

}  // namespace dtrun
