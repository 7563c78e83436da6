#pragma once

#include "base/result.h"
#include "collectives/backends/tcp/mesh.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dtrun::collectives::over_tcp {

/// Data are moved in parts of this size at most: large enough to make system calls and waking up
/// cheap, small enough to stay in a core's cache until they are added up.
inline constexpr std::size_t kChunkBytesMax = 256UL << 10;
/// Chunk size that Linux's default socket buffers have room for.
inline constexpr std::size_t kChunkBytesMin = 128UL << 10;

/// The largest part for which a socket that is ready has room, so that sending one does not block.
/// \param room  of Socket::send_room()
constexpr std::size_t chunk_bytes(std::size_t room) {
    // A socket is ready when a third is free.
    return std::clamp(room / 3 / kChunkBytesMin * kChunkBytesMin, kChunkBytesMin, kChunkBytesMax);
}

/// What goes in front of every part of a stream, in the byte order of the host, as data are.
struct PartHeader {
    std::uint32_t tag =
        0;  ///< differs between calls, so that ranks in different ones do not mix data up
    std::uint32_t zero = 0;
    std::uint64_t at = 0;  ///< where the part goes in the RecvStream's memory
    std::uint64_t bytes = 0;
};

/// The data that an operation sends to a peer, whose RecvStream has the same tag.
class SendStream {
public:
    SendStream(Mesh& mesh, std::uint32_t peer, std::uint32_t tag, const void* data)
        : mesh_(mesh), peer_(peer), tag_(tag), data_(static_cast<const std::byte*>(data)) {}

    /// Returns when the system has taken the data. Errc: closed, cancelled
    /// \param at  where they go in the RecvStream's memory
    Result<void> send(std::size_t offset, std::size_t bytes, std::size_t at);
    std::uint32_t peer() const { return peer_; }
    Mesh& mesh() const { return mesh_; }

private:
    Mesh& mesh_;
    std::uint32_t peer_;
    std::uint32_t tag_;
    const std::byte* data_;
};

/// What to do where a part has not come yet, or not as a whole.
enum class IfLate { wait, go_on };

/// Memory that a peer's SendStream with the same tag writes to.
class RecvStream {
public:
    RecvStream(Mesh& mesh, std::uint32_t peer, std::uint32_t tag, void* data, std::size_t bytes)
        : mesh_(mesh),
          peer_(peer),
          tag_(tag),
          data_(static_cast<std::byte*>(data)),
          bytes_(bytes) {}

    /// Takes what has come of the next part. If the peer sends something else, because it is in another call, waits
    /// until the connection is over. Errc: closed, cancelled
    /// \return whether the part has come as a whole
    Result<bool> receive(IfLate if_late);
    std::uint32_t peer() const { return peer_; }

private:
    Mesh& mesh_;
    std::uint32_t peer_;
    std::uint32_t tag_;
    std::byte* data_;
    std::size_t bytes_;
    PartHeader header_{};   ///< of the part that comes
    std::size_t come_ = 0;  ///< bytes of it, with its header
};

/// How the parts of a flow depend on each other.
struct FlowShape {
    static constexpr std::size_t kAny = static_cast<std::size_t>(-1) / 2;

    std::size_t sends = 0;
    std::size_t receives = 0;
    std::size_t lead = kAny;  ///< part i may be sent once i - lead have been received
    std::size_t lag = kAny;   ///< part i may be received once i - lag have been sent
};

/// Sends and receives parts, each as soon as it can be: neither direction waits for the other, so
/// no ring of ranks blocks itself, however much each has to send. Where both can go on they take
/// turns; otherwise nothing would be sent on a slow link, where there is always something to
/// receive. A turn is what has come and not a whole part: while the rest of that was waited for, what had been sent
/// would run out, and a ring that waits at one place waits everywhere.
/// \param send     Result<void>(std::size_t part)
/// \param receive  Result<bool>(std::size_t part, IfLate): whether it has come as a whole
template <class Send, class Receive>
Result<void> flow(const SendStream& out, const RecvStream& in, FlowShape shape, Send&& send,
                  Receive&& receive) {
    std::size_t sent = 0;
    std::size_t received = 0;
    bool sends_next = true;
    while (sent < shape.sends || received < shape.receives) {
        Ready ready{.send = sent < shape.sends && sent < received + shape.lead,
                    .receive = received < shape.receives && received < sent + shape.lag};
        const IfLate if_late = ready.send ? IfLate::go_on : IfLate::wait;
        // The first part has an empty socket to go to.
        if (ready.send && ready.receive && sent > 0) {
            const auto waited = out.mesh().wait_for(out.peer(), in.peer());
            if (!waited) return std::unexpected(waited.error());
            ready = *waited;
            if (!ready.send && !ready.receive) continue;
        }
        const bool sends = ready.send && (sends_next || !ready.receive);
        sends_next = !sends;
        if (sends) {
            if (auto done = send(sent); !done) return done;
            ++sent;
        } else {
            const Result<bool> whole = receive(received, if_late);
            if (!whole) return std::unexpected(whole.error());
            if (*whole) ++received;
        }
    }
    return {};
}

}  // namespace dtrun::collectives::over_tcp
