// What authenticated peers and ranks may send to a hub and through a relay: it may be refused, but
// nothing else may come of it.

#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/relay.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/msgpack.h"

#include <cstdlib>

namespace dtrun {
namespace {

/// Everything that leaves must be a frame that the other side would take.
struct Checked final : Outbox {
    void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
        if (peer > 1) std::abort();
        check(type, payload);
    }
    void to_root(FrameType type, std::string_view payload) override { check(type, payload); }
    static void check(FrameType type, std::string_view payload) {
        if (type == FrameType::reply && !decode_reply(payload)) std::abort();
        if (type == FrameType::fenced && !decode<Fenced>(payload)) std::abort();
    }
};

/// The bytes as a request: the first is the operation, the rest its arguments.
Bytes as_request(std::string_view bytes) {
    Bytes arguments;
    PackWriter out(arguments);
    out.array(4);
    out.uint(0);
    arguments += bytes.substr(1);
    const Bytes frame = encode_request({7, 1, 0, static_cast<Op>(bytes.front())}, arguments);
    return frame.substr(FrameHeader::kBytes);
}

}  // namespace
}  // namespace dtrun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace dtrun;
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    Checked out;
    HubOptions options;
    options.reconnects = true;
    Hub hub(out, options);
    Relay relay(out);
    hub.begin(1, 2);
    relay.begin(1, 2);
    for (const PeerId peer : {0u, 1u}) {
        hub.add_peer(peer, PeerKind::subtree, kNoRank);
        relay.add_peer(peer, PeerKind::rank, Rank{peer});
    }
    if (size > 0) {
        const Bytes request = as_request(bytes);
        static_cast<void>(hub.from_peer(0, {FrameType::request, request}, Deadline{}));
    }
    for (;;) {
        const auto frame = next_frame(bytes);
        if (!frame || !*frame) break;
        static_cast<void>(hub.from_peer(0, **frame, Deadline{}));
        static_cast<void>(relay.from_peer(1, **frame, Deadline{}));
        static_cast<void>(relay.from_root(**frame));
    }
    hub.expire(Deadline::max());
    hub.remove_peer(0);
    relay.remove_peer(1);
    return 0;
}
