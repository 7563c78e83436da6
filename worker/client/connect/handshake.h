#pragma once

#include "rendezvous/wire/handshake.h"
#include "worker/client/connect/credentials.h"
#include "worker/client/connect/frame_socket.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"

#include <chrono>

namespace dtrun::embedded {

// The handshake of rendezvous/wire/handshake.h over sockets that are waited for, without encryption.

inline constexpr std::chrono::seconds kHandshakeTime{5};
inline constexpr HandshakeWords kHandshakeWords{"it", "has another secret",
                                                ", which the client library cannot do"};

/// The client's side, within kHandshakeTime.
/// Failures: closed, timed_out, cancelled, refused (no dtrun, another secret, job or version)
Outcome<void> authenticate(FrameSocket& socket, const ClientCredentials& credentials,
                           WaitContext context);

}  // namespace dtrun::embedded
