#pragma once

#include "base/ids.h"
#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "rendezvous/wire/sealing.h"

#include <optional>

namespace dtrun {

// The handshake of rendezvous/wire/handshake.h over Asio, and the keys of an encrypted connection.

/// A client's proof of membership.
struct Credentials {
    JobId job{};
    Secret secret;
    bool encrypt = false;
};

/// Client side; the keys if the connection is encrypted from here on. Errc: denied, closed, timed_out
asio::awaitable<Result<std::optional<Sealing>>> authenticate_to_server(tcp::socket& socket,
                                                                       Credentials credentials,
                                                                       Deadline deadline);

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
