#pragma once

#include "base/loop/asio.h"

#include <cstdint>
#include <string_view>

namespace dtrun {

/// Who has the other end of a TCP connection within this machine, for protocols in which nobody says
/// who he is.
enum class PeerUser : std::uint8_t {
    ours,     ///< a process of our own user, or of root
    other,    ///< one of somebody else's
    gone,     ///< nobody any more: the kernel does not remember whose a closed socket was
    unknown,  ///< there is nobody who could tell: neither sock_diag(7) nor /proc/net/tcp
};

PeerUser peer_user(const tcp::socket& socket);
/// The same for a connection of somebody else's, of which `near` is the end within this machine.
PeerUser user_of(const tcp::endpoint& near, const tcp::endpoint& far);

/// Who was turned away, in words for the user. Not for ours.
std::string_view describe(PeerUser user);

}  // namespace dtrun
