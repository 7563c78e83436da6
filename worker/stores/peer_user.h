#pragma once

#include "base/asio.h"

#include <sys/types.h>
#include <optional>

namespace dtrun {

/// Who has the other end of a TCP connection within this machine, for protocols in which nobody says
/// who he is. Nothing if the other end is not here, or has gone.
std::optional<uid_t> local_peer_user(const tcp::socket& socket);

/// Whether the other end is a process of our own user, or of root.
bool is_peer_ours(const tcp::socket& socket);

}  // namespace dtrun
