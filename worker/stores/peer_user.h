#pragma once

#include "base/asio.h"

#include <cstdint>

namespace dtrun {

/// Who has the other end of a TCP connection within this machine, for protocols in which nobody says
/// who he is.
enum class PeerUser : std::uint8_t {
    ours,  ///< a process of our own user, or of root; also where the kernel tells nobody whose it is
    other,  ///< one of somebody else's
    gone,   ///< nobody any more: the kernel does not remember whose a closed socket was
};

PeerUser peer_user(const tcp::socket& socket);

}  // namespace dtrun
