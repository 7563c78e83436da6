#pragma once

#include "rendezvous/wire/handshake_records.h"
#include "worker/client/connect/credentials.h"
#include "worker/client/connect/frame_socket.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"

#include <chrono>
#include <optional>
#include <string_view>

namespace dtrun::embedded {

// The authentication of rendezvous/wire/handshake_records.h, both sides, without encryption.

inline constexpr std::chrono::seconds kHandshakeTime{5};

/// Failures: refused (the record of somebody who does not speak our version, or wants encryption)
Outcome<void> check_preamble(const std::optional<Preamble>& theirs);

/// The client's side, within kHandshakeTime.
/// Failures: closed, timed_out, cancelled, refused (no dtrun, another secret, job or version)
Outcome<void> authenticate(FrameSocket& socket, const ClientCredentials& credentials,
                           WaitContext context);

/// The server's half of the authentication: its answer to a client's record, and the proof that the
/// client must show to get the server's proof; a client that fails gets zeros instead. Only clients
/// of this job can know the proof.
struct Challenge {
    ServerRecord record{};
    Proofs proofs;
};
/// \param client  ClientHello::kBytes
/// Failures: refused (no dtrun, another version, or it wants encryption)
Outcome<Challenge> challenge(const ClientCredentials& credentials, std::string_view client);

}  // namespace dtrun::embedded
