#pragma once

#include "base/crypto.h"
#include "base/ids.h"
#include "base/result.h"
#include "rendezvous/wire/message.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dtrun {

// Mutual proof that both sides of a connection know the job's secret, before anything else is parsed.
// These are its records and proofs; handshake.h has what each side says when. Records have a fixed size and are
// big-endian, so that nothing grows with what a stranger says:
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

/// Versions of the protocol that a side speaks. Two sides speak the lower of their newest ones, so each needs to
/// know only whether the other's is too old for it (docs/VERSIONS.md).
struct ProtocolVersions {
    std::uint16_t newest = kProtocolVersion;
    std::uint16_t oldest = kProtocolVersion;  ///< from version 4 on: the one before the newest

    constexpr bool knows(std::uint16_t others_newest) const { return others_newest >= oldest; }
};

using Nonce = std::array<std::uint8_t, 32>;

inline constexpr std::uint16_t kFlagEncrypt = 1;

/// The beginning of a hello record.
struct Preamble {
    static constexpr std::size_t kBytes = 8;
    std::uint16_t version = kProtocolVersion;
    std::uint16_t flags = 0;
};

std::array<std::uint8_t, Preamble::kBytes> encode_preamble(const Preamble& preamble);
/// \param bytes  at least Preamble::kBytes
/// \return nothing for who does not speak dtrun's protocol
std::optional<Preamble> decode_preamble(std::span<const std::uint8_t> bytes);

struct ClientHello {
    static constexpr std::size_t kBytes = 56;
    std::uint16_t version = kProtocolVersion;
    std::uint16_t flags = 0;
    JobId job{};
    Nonce nonce{};
};
using ClientRecord = std::array<std::uint8_t, ClientHello::kBytes>;

ClientRecord encode_hello(const ClientHello& hello);
/// Errc: invalid_input (not our protocol, or unknown flags)
Result<ClientHello> decode_hello(std::span<const std::uint8_t, ClientHello::kBytes> bytes);

struct ServerHello {
    static constexpr std::size_t kBytes = 40;
    std::uint16_t version = kProtocolVersion;
    std::uint16_t flags = 0;
    Nonce nonce{};
};
using ServerRecord = std::array<std::uint8_t, ServerHello::kBytes>;

ServerRecord encode_hello(const ServerHello& hello);
/// \return nothing for who does not speak dtrun's protocol
std::optional<ServerHello> decode_server_hello(
    std::span<const std::uint8_t, ServerHello::kBytes> bytes);

Nonce random_nonce();

/// The proofs of both sides; to be compared with equal_constant_time().
struct Proofs {
    Sha256 client{};
    Sha256 server{};
};
Proofs make_proofs(const Secret& secret, const ClientRecord& client, const ServerRecord& server);

}  // namespace dtrun
