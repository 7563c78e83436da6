#pragma once

#include "base/result.h"
#include "collectives/gloo/mesh.h"

#include <gloo/transport/buffer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace dtrun::collectives::over_gloo {

/// Data are moved in parts of this size at most: large enough to make system calls and waking up
/// cheap, small enough to stay in a core's cache until they are added up.
inline constexpr std::size_t kSegmentBytesMax = 256UL << 10;
/// Segment size that Linux's default socket buffers have room for.
inline constexpr std::size_t kSegmentBytesMin = 128UL << 10;

/// The largest part for which a socket that is ready has room, so that sending one does not block.
/// \param room  of Socket::send_room()
constexpr std::size_t segment_bytes(std::size_t room) {
    // A socket is ready when a third is free.
    return std::clamp(room / 3 / kSegmentBytesMin * kSegmentBytesMin, kSegmentBytesMin,
                      kSegmentBytesMax);
}

/// The data that an operation sends to a peer, whose Inlet has the same tag.
class Outlet {
public:
    Outlet(Mesh& mesh, std::uint32_t peer, std::uint32_t tag, const void* data, std::size_t bytes);

    /// Returns when the system has taken the data. Errc: closed
    /// \param at  where they go in the Inlet's memory
    Result<void> send(std::size_t offset, std::size_t bytes, std::size_t at);
    int fd() const { return mesh_.socket(peer_).fd(); }

private:
    Mesh& mesh_;
    std::uint32_t peer_;
    std::unique_ptr<::gloo::transport::Buffer> buffer_;
};

/// Memory that a peer's Outlet with the same tag writes to.
class Inlet {
public:
    Inlet(Mesh& mesh, std::uint32_t peer, std::uint32_t tag, void* data, std::size_t bytes);

    /// Waits for the next part. If the peer sends something else, because it is in another call,
    /// waits until the connection is over. Errc: closed
    Result<void> receive();
    int fd() const { return mesh_.socket(peer_).fd(); }

private:
    Mesh& mesh_;
    std::uint32_t peer_;
    std::unique_ptr<::gloo::transport::Buffer> buffer_;
    std::string refused_;  ///< why there is no buffer_
};

/// How the parts of a flow depend on each other.
struct FlowShape {
    static constexpr std::size_t kAny = static_cast<std::size_t>(-1) / 2;

    std::size_t sends = 0;
    std::size_t receives = 0;
    std::size_t lead = kAny;  ///< part i may be sent once i - lead have been received
    std::size_t lag = kAny;   ///< part i may be received once i - lag have been sent
};

/// Which of two connections can go on.
struct Ready {
    bool send = false;
    bool receive = false;
};
/// Waits until one of two descriptors is ready.
Ready wait_for(int send_fd, int receive_fd);

/// Sends and receives parts, each as soon as it can be: neither direction waits for the other, so
/// no ring of ranks blocks itself, however much each has to send. Where both can go on they take
/// turns; otherwise nothing would be sent on a slow link, where there is always something to
/// receive.
/// \param send, receive  Result<void>(std::size_t part)
template <class Send, class Receive>
Result<void> flow(const Outlet& out, const Inlet& in, FlowShape shape, Send&& send,
                  Receive&& receive) {
    std::size_t sent = 0;
    std::size_t received = 0;
    bool sends_next = true;
    while (sent < shape.sends || received < shape.receives) {
        Ready ready{.send = sent < shape.sends && sent < received + shape.lead,
                    .receive = received < shape.receives && received < sent + shape.lag};
        // The first part has an empty socket to go to.
        if (ready.send && ready.receive && sent > 0) ready = wait_for(out.fd(), in.fd());
        const bool sends = ready.send && (sends_next || !ready.receive);
        sends_next = !sends;
        if (sends) {
            if (auto done = send(sent); !done) return done;
            ++sent;
        } else {
            if (auto done = receive(received); !done) return done;
            ++received;
        }
    }
    return {};
}

}  // namespace dtrun::collectives::over_gloo
