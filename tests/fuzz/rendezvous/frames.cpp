// Everything that can arrive from the network: frames, and the message in each.

#include "rendezvous/handshake.h"
#include "rendezvous/messages.h"
#include "rendezvous/relayed.h"
#include "rendezvous/request.h"

#include <cstdlib>

namespace dtrun {
namespace {

template <class M>
void round_trip(std::string_view payload) {
    const auto message = decode<M>(payload);
    if (!message) return;
    // What was accepted can be sent, and is accepted again.
    const Bytes frame = encode(*message);
    if (!decode<M>(std::string_view(frame).substr(FrameHeader::kBytes))) std::abort();
}

void try_all(const FrameView& frame) {
    round_trip<Bootstrap>(frame.payload);
    round_trip<Relays>(frame.payload);
    round_trip<Join>(frame.payload);
    round_trip<Assign>(frame.payload);
    round_trip<Started>(frame.payload);
    round_trip<Exited>(frame.payload);
    round_trip<OutputEnd>(frame.payload);
    round_trip<Credit>(frame.payload);
    round_trip<Input>(frame.payload);
    round_trip<InputCredit>(frame.payload);
    round_trip<SignalRanks>(frame.payload);
    round_trip<Stop>(frame.payload);
    round_trip<Done>(frame.payload);
    round_trip<Refuse>(frame.payload);
    round_trip<Hello>(frame.payload);
    round_trip<Welcome>(frame.payload);
    round_trip<Gone>(frame.payload);
    round_trip<Fence>(frame.payload);
    round_trip<Unfence>(frame.payload);
    round_trip<GroupFence>(frame.payload);
    round_trip<Fenced>(frame.payload);
    round_trip<RankProgress>(frame.payload);
    round_trip<Event>(frame.payload);
    round_trip<Heartbeat>(frame.payload);
    round_trip<RelayLost>(frame.payload);
    round_trip<Pause>(frame.payload);
    round_trip<Paused>(frame.payload);
    round_trip<Enter>(frame.payload);
    round_trip<Propose>(frame.payload);
    round_trip<Accept>(frame.payload);
    round_trip<Leave>(frame.payload);
    static_cast<void>(decode_request(frame.payload));
    static_cast<void>(decode_reply(frame.payload));
    static_cast<void>(decode_relayed(frame.payload));
    if (const auto output = decode_output(frame.payload))
        if (output->data.size() + OutputHeader::kBytes != frame.payload.size()) std::abort();
}

}  // namespace
}  // namespace dtrun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace dtrun;
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (size >= ClientHello::kBytes)
        static_cast<void>(decode_hello(
            std::span<const std::uint8_t, ClientHello::kBytes>(data, ClientHello::kBytes)));
    for (;;) {
        const auto frame = next_frame(bytes);
        if (!frame || !*frame) return 0;
        try_all(**frame);
    }
}
