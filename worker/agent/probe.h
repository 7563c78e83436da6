#pragma once

#include "base/loop/asio.h"
#include "rendezvous/wire/start_messages.h"

namespace dtrun::agent {

/// Tries to connect to each of the probe's addresses, all side by side.
asio::awaitable<Reached> try_addresses(Probe probe);

}  // namespace dtrun::agent
