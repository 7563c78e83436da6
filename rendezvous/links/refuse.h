#pragma once

#include "base/loop/asio.h"
#include "rendezvous/links/link.h"

#include <string>

namespace dtrun {

/// Tells a peer why it is refused, and reads on until it closes, for a second at most: closing a socket with
/// unread bytes would send a reset, which may discard the refusal. The link's writer runs meanwhile.
asio::awaitable<void> refuse(Link& link, std::string why);

}  // namespace dtrun
