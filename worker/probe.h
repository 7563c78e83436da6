#pragma once

#include "base/asio.h"
#include "rendezvous/messages.h"

namespace dtrun {

/// Tries to connect to each of the probe's addresses, all side by side.
asio::awaitable<Reached> try_addresses(Probe probe);

}  // namespace dtrun
