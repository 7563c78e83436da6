#include "rendezvous/messages.h"

#include "rendezvous/msgpack.h"

#include <concepts>
#include <limits>
#include <type_traits>

namespace dtrun {
namespace {

template <class T>
concept Message = requires(T& m) {
    T::fields(m, [](std::string_view, auto&) {});
};

void pack(PackWriter& out, bool value) {
    out.boolean(value);
}
void pack(PackWriter& out, const std::string& value) {
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
void pack(PackWriter& out, const std::pair<std::string, std::string>& value) {
    out.array(2);
    out.str(value.first);
    out.str(value.second);
}
template <Message T>
void pack(PackWriter& out, const T& message);
template <class T>
void pack(PackWriter& out, const std::vector<T>& items) {
    out.array(static_cast<std::uint32_t>(items.size()));
    for (const T& item : items) pack(out, item);
}
template <Message T>
void pack(PackWriter& out, const T& message) {
    std::uint32_t count = 0;
    T::fields(message, [&count](std::string_view, const auto&) { ++count; });
    out.map(count);
    T::fields(message, [&out](std::string_view name, const auto& value) {
        out.str(name);
        pack(out, value);
    });
}

void unpack(PackReader& in, bool& value) {
    value = in.boolean();
}
void unpack(PackReader& in, std::string& value) {
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
void unpack(PackReader& in, std::pair<std::string, std::string>& value) {
    if (in.array() != 2) return in.set_failed();
    value.first = in.str();
    value.second = in.str();
}
template <Message T>
void unpack(PackReader& in, T& message);
template <class T>
void unpack(PackReader& in, std::vector<T>& items) {
    const std::uint32_t count = in.array();
    items.clear();
    for (std::uint32_t i = 0; in.ok() && i < count; ++i) unpack(in, items.emplace_back());
}
template <Message T>
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

}  // namespace

template <class M>
Bytes encode(const M& message) {
    Bytes payload;
    PackWriter writer(payload);
    pack(writer, message);
    return encode_frame(M::kType, payload);
}

template <class M>
Result<M> decode(std::string_view payload) {
    PackReader reader(payload);
    M message;
    unpack(reader, message);
    if (!reader.at_end())
        return fail(Errc::invalid_input, "malformed message of type {}",
                    static_cast<int>(M::kType));
    return message;
}

#define DTRUN_MESSAGE(M)                \
    template Bytes encode<M>(const M&); \
    template Result<M> decode<M>(std::string_view);
DTRUN_MESSAGE(Bootstrap)
DTRUN_MESSAGE(Relays)
DTRUN_MESSAGE(Join)
DTRUN_MESSAGE(Assign)
DTRUN_MESSAGE(Started)
DTRUN_MESSAGE(Exited)
DTRUN_MESSAGE(OutputEnd)
DTRUN_MESSAGE(Credit)
DTRUN_MESSAGE(Input)
DTRUN_MESSAGE(InputCredit)
DTRUN_MESSAGE(SignalRanks)
DTRUN_MESSAGE(Stop)
DTRUN_MESSAGE(Done)
DTRUN_MESSAGE(Refuse)
DTRUN_MESSAGE(Hello)
DTRUN_MESSAGE(Welcome)
DTRUN_MESSAGE(Gone)
DTRUN_MESSAGE(Fence)
DTRUN_MESSAGE(Unfence)
DTRUN_MESSAGE(Fenced)
DTRUN_MESSAGE(RankProgress)
DTRUN_MESSAGE(Event)
DTRUN_MESSAGE(Heartbeat)
DTRUN_MESSAGE(RelayLost)
DTRUN_MESSAGE(Pause)
DTRUN_MESSAGE(Paused)
DTRUN_MESSAGE(Enter)
DTRUN_MESSAGE(Propose)
DTRUN_MESSAGE(Accept)
DTRUN_MESSAGE(Leave)
DTRUN_MESSAGE(Probe)
DTRUN_MESSAGE(Reached)
DTRUN_MESSAGE(Waits)
#undef DTRUN_MESSAGE

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
    put(FrameHeader::kBytes, header.rank, 4);
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
    view.header.rank = static_cast<std::uint32_t>(get(0, 4));
    view.header.stream = static_cast<Stream>(get(4, 1));
    view.header.time_ns = static_cast<std::int64_t>(get(8, 8));
    if (view.header.stream != Stream::out && view.header.stream != Stream::err)
        return fail(Errc::invalid_input, "output frame of stream {}", get(4, 1));
    view.data = payload.substr(OutputHeader::kBytes);
    return view;
}

}  // namespace dtrun
