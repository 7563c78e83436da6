#pragma once

#include "base/crypto.h"
#include "worker/client/credentials.h"
#include "worker/client/frame_socket.h"
#include "worker/client/outcome.h"
#include "worker/client/patience.h"

#include <chrono>
#include <string>
#include <string_view>

namespace dtrun::embedded {

// The authentication of docs/PROTOCOL.md, both sides, without encryption. rendezvous/handshake.h is
// the same with it, over Asio.

inline constexpr std::chrono::seconds kHandshakeTime{5};
inline constexpr std::size_t kClientRecordBytes = 56;
inline constexpr std::size_t kServerRecordBytes = 40;
inline constexpr std::size_t kProofBytes = 32;

/// "dtrn", the version, and no flags: what each record begins with.
std::string preamble();

/// The client's side, within kHandshakeTime.
/// Failures: closed, timed_out, cancelled, refused (no dtrun, another secret, job or version)
Outcome<void> authenticate(FrameSocket& socket, const Credentials& credentials, Patience patience);

/// The server's side, of bytes alone: what it says to a client's record, what the client must answer,
/// and what the server says to that. A client of another job cannot answer right.
struct Challenge {
    std::string record;  ///< kServerRecordBytes
    Sha256 expected{};   ///< the client's proof, to be compared in constant time
    Sha256 proof{};      ///< for who has given the right one; others get as many zeros
};
/// \param client  kClientRecordBytes
/// Failures: refused (no dtrun, another version, or it wants encryption)
Outcome<Challenge> challenge(const Credentials& credentials, std::string_view client);

}  // namespace dtrun::embedded
