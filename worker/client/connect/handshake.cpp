#include "worker/client/connect/handshake.h"

#include <algorithm>

namespace dtrun::embedded {

Outcome<void> authenticate(FrameSocket& socket, const ClientCredentials& credentials,
                           WaitContext context) {
    context.deadline = std::min(context.deadline, now() + kHandshakeTime);
    Handshake handshake(credentials.job, credentials.secret, {.words = kHandshakeWords});
    for (;;) {
        if (auto sent = socket.send(handshake.take_output()); !sent) return sent;
        const auto room = handshake.room();
        if (room.empty()) return {};
        const auto bytes = socket.read_exactly(room.size(), context);
        if (!bytes) return std::unexpected(bytes.error());
        std::ranges::copy(as_bytes(*bytes), room.begin());
        if (auto fits = handshake.come(room.size()); !fits)
            return failure(DTRUN_REFUSED, "{}", fits.error().message);
    }
}

}  // namespace dtrun::embedded
