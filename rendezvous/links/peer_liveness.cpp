#include "rendezvous/links/peer_liveness.h"

#include "rendezvous/wire/heartbeat.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <optional>

namespace dtrun {
namespace {

/// A live peer that answers each beat was heard within this time.
constexpr std::chrono::milliseconds kJustHeard =
    kCalmHeartbeatInterval + std::chrono::milliseconds(200);
/// A peer that was cut off has sent its last TCP ACK at most this long after we last heard it.
constexpr std::chrono::milliseconds kLastAnswer{800};
/// A live but busy peer's kernel has acknowledged our last heartbeat within this time.
constexpr std::chrono::milliseconds kAnswersWithin{1'500};

/// \return nothing: the socket is closed, or a Unix socket
std::optional<tcp_info> info_of(StreamSocket& socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    return info;
}

}  // namespace

bool PeerLiveness::loses_packets() {
    const auto info = info_of(socket_);
    if (!info) return false;
    if (Clock::now() - last_heard_ < kJustHeard) repeated_ = info->tcpi_total_retrans;
    const Deadline answered = Clock::now() - std::chrono::milliseconds(info->tcpi_last_ack_recv);
    return info->tcpi_total_retrans > repeated_ && answered > last_heard_ + kLastAnswer;
}

bool PeerLiveness::machine_answers() const {
    const auto info = info_of(socket_);
    return info && std::chrono::milliseconds(info->tcpi_last_ack_recv) < kAnswersWithin;
}

void PeerLiveness::set_stopped(bool stopped) {
    const int timeout_ms = stopped ? 0 : kUserTimeoutMs;  // 0: TCP's own limit of retransmissions
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
                 sizeof timeout_ms);
}

}  // namespace dtrun
