#pragma once

#include "base/crypto.h"
#include "base/ids.h"
#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "rendezvous/sealing.h"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

namespace dtrun {

// Mutual proof that both sides know the job's secret, before anything else is parsed, and the keys of
// an encrypted connection. Records of fixed size, big-endian, so that nothing is allocated for a
// stranger:
//
//   client -> server   "dtrn"  u16 version  u16 flags  job id[16]  nonce[32]           56 bytes
//   server -> client   "dtrn"  u16 version  u16 flags  nonce[32]                       40 bytes
//   client -> server   proof[32]                                                       32 bytes
//   server -> client   proof[32]                                                       32 bytes
//
// proof = HMAC-SHA256(secret, role || client's record || server's record), with role "dtrun server"
// or "dtrun client". The client proves itself first, so that strangers cannot ask for something to
// try secrets on; a server that refuses says 32 zeros instead of its proof. Fresh nonces on both sides
// refuse replays; version and flags are under the proofs, so that a downgrade is refused too. Flag 1
// asks for encryption: the nonces are X25519 public keys then.

using Nonce = std::array<std::uint8_t, 32>;

inline constexpr std::uint16_t kFlagEncrypt = 1;

struct ClientHello {
    static constexpr std::size_t kBytes = 56;
    std::uint16_t version = 0;
    std::uint16_t flags = 0;
    JobId job{};
    Nonce nonce{};
};

std::array<std::uint8_t, ClientHello::kBytes> encode_hello(const ClientHello& hello);
/// Errc: invalid_input
Result<ClientHello> decode_hello(std::span<const std::uint8_t, ClientHello::kBytes> bytes);

/// What a client has to show.
struct Credentials {
    JobId job{};
    Secret secret;
    bool encrypt = false;
};

/// Client side; the keys if the connection is encrypted from here on.
/// Errc: denied (the server does not know the secret, speaks another version, or does not want the
/// same encryption; nobody has proved that it is the server who says so), closed, timed_out
asio::awaitable<Result<std::optional<Sealing>>> authenticate_to_server(tcp::socket& socket,
                                                                       Credentials credentials,
                                                                       Deadline deadline);

/// Finds a job's secret; nothing when there is no such job.
using SecretOf = std::function<std::optional<Secret>(const JobId&)>;

struct Authenticated {
    JobId job{};
    std::optional<Sealing> sealing;
};

/// Server side. An unknown job looks to the client like a wrong secret.
/// \param encrypt  whether connections are to be encrypted: the client must want the same
/// Errc: denied, invalid_input (not our protocol), closed, timed_out
asio::awaitable<Result<Authenticated>> authenticate_client(tcp::socket& socket, SecretOf secret_of,
                                                           bool encrypt, Deadline deadline);

}  // namespace dtrun
