#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "rendezvous/links/handshake.h"
#include "rendezvous/links/link.h"

#include <string>
#include <vector>

namespace dtrun {

/// Connects to the first of `addresses` (numeric) at which the job's server authenticates itself.
/// All are tried in parallel, each a little after the one before it, so that a dead address costs
/// no time. An address that refuses the connection is not retried; a server that accepts and
/// closes, because it has too many unauthenticated connections at the moment, is.
/// Errc: unreachable, denied, timed_out; the message names every address and its error.
asio::awaitable<Result<Connection>> connect_to_server(std::vector<std::string> addresses,
                                                      std::uint16_t port, Credentials credentials,
                                                      Deadline deadline);

}  // namespace dtrun
