#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "rendezvous/handshake.h"
#include "rendezvous/link.h"

#include <string>
#include <vector>

namespace dtrun {

/// Connects to the first of `addresses` (numeric) behind which the job's server proves itself. All
/// are tried side by side, each a little after the one before it, so that a dead address costs
/// nothing. Where nobody listens is not tried again; a server that accepts and closes, because it has too
/// many strangers at the moment, is.
/// Errc: unreachable, denied, timed_out; the message names every address and what came of it.
asio::awaitable<Result<Connection>> connect_to_server(std::vector<std::string> addresses,
                                                      std::uint16_t port, Credentials credentials,
                                                      Deadline deadline);

}  // namespace dtrun
