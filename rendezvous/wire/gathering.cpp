#include "rendezvous/wire/gathering.h"

#include "rendezvous/wire/fields_codec.h"
#include "rendezvous/wire/frame.h"

#include <algorithm>

namespace dtrun {
namespace {

/// Those fields of a heartbeat that a daemon has for its members.
struct ToMember {
    std::uint32_t timeout_ms = 0;
    std::optional<Gathering> gathering{};

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("timeout_ms", m.timeout_ms), f("gathering", m.gathering);
    }
};

}  // namespace

Bytes encode_heartbeat(std::uint32_t timeout_ms, const Gathering& gathering) {
    Bytes frame(FrameHeader::kBytes, '\0');
    PackWriter writer(frame);
    pack(writer, ToMember{timeout_ms, gathering});
    const auto bytes = static_cast<std::uint32_t>(frame.size() - FrameHeader::kBytes);
    std::ranges::copy(encode_header({FrameType::heartbeat, bytes}), frame.begin());
    return frame;
}

Result<std::optional<Gathering>> gathering_in(std::string_view heartbeat) {
    PackReader reader(heartbeat);
    ToMember message;
    unpack(reader, message);
    if (!reader.at_end()) return fail(Errc::invalid_input, "malformed heartbeat");
    return message.gathering;
}

}  // namespace dtrun
