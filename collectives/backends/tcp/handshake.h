#pragma once

#include "base/crypto.h"
#include "base/ids.h"
#include "base/result.h"
#include "collectives/backends/tcp/socket.h"
#include "rendezvous/wire/handshake.h"
#include "rendezvous/wire/sealing.h"

#include <cstdint>
#include <optional>

namespace dtrun::collectives::over_tcp {

// How a connection between two ranks begins: the handshake of rendezvous/wire/handshake.h, under a secret
// of the group, over sockets that do not block. Both sides' fresh numbers are in it, so that what was said once
// opens nothing again. In the place of the job's id stands what the connection is for.

/// What a connection is for. Each pair of ranks has at most one of each kind.
enum class ConnectionKind : std::uint32_t {
    streams = 1,   ///< of a collective operation: both ends are in the same call
    messages = 2,  ///< of start(): matched by number, as many under way as one likes
};

/// Whose connection it is, and what for.
struct ConnectRequest {
    ConnectionKind kind = ConnectionKind::streams;
    std::uint32_t from = 0;  ///< the rank that asks for it
    std::uint32_t to = 0;
    bool operator==(const ConnectRequest&) const = default;
};
JobId encode(const ConnectRequest& request);
/// \return nothing for what no rank says
std::optional<ConnectRequest> decode_connect_request(const JobId& id);

/// What the ranks of a group share, and strangers do not.
struct Terms {
    Secret secret{};
    bool encrypt = false;
};

/// One side of it.
class RankHandshake {
public:
    /// The rank that asks for a connection.
    RankHandshake(const ConnectRequest& request, const Terms& terms);
    /// The rank that is asked. Whoever asks proves himself first.
    explicit RankHandshake(const Terms& terms);

    /// Goes on as far as that can be done at once. Errc: closed, denied (it is no rank of this group, or wants other
    /// encryption), invalid_input (it does not speak our protocol)
    /// \return whether the other side has proved itself, and was answered
    Result<bool> advance(const Socket& socket);
    bool has_to_send() const { return !out_.empty(); }
    /// Once it has.
    ConnectRequest request() const { return *decode_connect_request(handshake_.job()); }
    /// Once it has: the keys, if the connection is encrypted from here on.
    std::optional<Sealing> take_sealing() { return std::move(sealing_); }

private:
    std::optional<KeyExchange> exchange_;
    Handshake handshake_;
    Bytes out_;  ///< is not sent yet
    std::optional<Sealing> sealing_;
};

}  // namespace dtrun::collectives::over_tcp
