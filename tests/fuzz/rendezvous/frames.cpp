// Everything that can arrive from the network: frames, and the message in each.

#include "rendezvous/wire/control_messages.h"
#include "rendezvous/wire/doctor_messages.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/handshake.h"
#include "rendezvous/wire/login_messages.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/relayed.h"
#include "rendezvous/wire/request.h"
#include "rendezvous/wire/start_messages.h"
#include "rendezvous/wire/warm_messages.h"

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
#define DTRUN_FRAME(name, number, from_to, meaning)
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) \
    round_trip<Message>(frame.payload);
#include "rendezvous/wire/messages.def"
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
    Handshake server([](const JobId&) { return std::optional(Secret()); });
    for (std::size_t at = 0; at < size && !server.room().empty(); ++at) {
        server.room().front() = data[at];
        if (!server.come(1)) break;
    }
    for (;;) {
        const auto frame = next_frame(bytes);
        if (!frame || !*frame) return 0;
        try_all(**frame);
    }
}
