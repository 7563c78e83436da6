#pragma once

#include "base/asio.h"
#include "base/crypto.h"
#include "base/deadline.h"
#include "base/ids.h"
#include "base/result.h"

#include <array>
#include <cstdint>
#include <functional>

namespace dtrun {

// Mutual proof that both sides know the job's secret, before anything else is parsed. Records of
// fixed size, big-endian, so that nothing is allocated for a stranger:
//
//   client -> server   "dtrn"  u16 version  u16 0  job id[16]  nonce[32]           56 bytes
//   server -> client   "dtrn"  u16 version  u16 0  nonce[32]  proof[32]            72 bytes
//   client -> server   proof[32]                                                   32 bytes
//
// proof = HMAC-SHA256(secret, role || client's record || server's record without its proof), with
// role "dtrun server" or "dtrun client". Fresh nonces on both sides refuse replays; the version is
// under the proof, so that a downgrade is refused too.

using Nonce = std::array<std::uint8_t, 32>;

struct ClientHello {
    static constexpr std::size_t kBytes = 56;
    std::uint16_t version = 0;
    JobId job{};
    Nonce nonce{};
};

std::array<std::uint8_t, ClientHello::kBytes> encode_hello(const ClientHello& hello);
/// Errc: invalid_input
Result<ClientHello> decode_hello(std::span<const std::uint8_t, ClientHello::kBytes> bytes);

/// Client side. Errc: denied (the server does not know the secret, or speaks another version),
/// closed, timed_out
asio::awaitable<Result<void>> authenticate_to_server(tcp::socket& socket, JobId job, Secret secret,
                                                     Deadline deadline);

/// Finds a job's secret; nullptr when there is no such job.
using SecretOf = std::function<const Secret*(const JobId&)>;

/// Server side. An unknown job looks to the client like a wrong secret.
/// Errc: denied, invalid_input (not our protocol), closed, timed_out
asio::awaitable<Result<JobId>> authenticate_client(tcp::socket& socket, SecretOf secret_of,
                                                   Deadline deadline);

}  // namespace dtrun
