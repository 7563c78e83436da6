#include "collectives/gloo/stream.h"

#include <gloo/common/error.h>

#include <poll.h>

#include <cerrno>
#include <exception>

namespace dtrun::collectives::over_gloo {
namespace {

/// Both directions of a connection may be in use with the same tag, and Gloo forgets the inlet of
/// a slot when an outlet of the same slot goes: so they are told apart.
int slot_of(std::uint32_t tag, bool upwards) {
    return static_cast<int>((tag & 0x3fffffffU) << 1 | (upwards ? 1U : 0U));
}

}  // namespace

Outlet::Outlet(Mesh& mesh, std::uint32_t peer, std::uint32_t tag, const void* data,
               std::size_t bytes)
    : mesh_(mesh),
      peer_(peer),
      buffer_(mesh.pair(peer).createSendBuffer(
          slot_of(tag, static_cast<int>(peer) > mesh.context().rank), const_cast<void*>(data),
          bytes)) {}

Result<void> Outlet::send(std::size_t offset, std::size_t bytes, std::size_t at) {
    try {
        buffer_->send(offset, bytes, at);
        // Gloo has sized the socket's buffer for this message alone.
        if (mesh_.grew(peer_, bytes)) mesh_.socket(peer_).make_send_room();
        return {};
    } catch (const std::exception& error) {
        mesh_.broke(peer_);
        return fail(Errc::closed, "{}", reason_of(error));
    }
}

Inlet::Inlet(Mesh& mesh, std::uint32_t peer, std::uint32_t tag, void* data, std::size_t bytes)
    : mesh_(mesh), peer_(peer) {
    try {
        buffer_ = mesh.pair(peer).createRecvBuffer(
            slot_of(tag, static_cast<int>(peer) < mesh.context().rank), data, bytes);
    } catch (const std::exception& error) {
        refused_ = reason_of(error);
    }
}

Result<void> Inlet::receive() {
    if (!buffer_) return fail(Errc::internal, "{}", refused_);
    try {
        buffer_->waitRecv();
        return {};
    } catch (const ::gloo::Exception& error) {
        mesh_.broke(peer_);
        return fail(Errc::closed, "{}", reason_of(error));
    } catch (const std::exception& error) {
        mesh_.socket(peer_).wait_until_shut();
        mesh_.broke(peer_);
        return fail(Errc::closed, "it was in another call: {}", reason_of(error));
    }
}

Ready wait_for(int send_fd, int receive_fd) {
    pollfd entries[2] = {{send_fd, POLLOUT, 0}, {receive_fd, POLLIN, 0}};
    while (poll(entries, 2, -1) < 0 && errno == EINTR) {
    }
    return {.send = entries[0].revents != 0, .receive = entries[1].revents != 0};
}

}  // namespace dtrun::collectives::over_gloo
