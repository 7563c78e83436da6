#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "rendezvous/link.h"

#include <functional>
#include <optional>
#include <string>

namespace dtrun {

/// The heartbeat of a process: calls back every kHeartbeatInterval, and tells whom it has not heard.
///
/// A process that was stopped, or starved, has heard nobody meanwhile: it does not blame its peers for
/// the time during which it did not run itself.
///
/// Thread: the executor's. Cancellation: run() ends with its task.
class Pulse {
public:
    /// \param timeout  after so much silence a peer is lost
    Pulse(asio::any_io_executor executor, std::chrono::milliseconds timeout);

    /// \param beat  send heartbeats, and look who is silent
    asio::awaitable<void> run(std::function<void()> beat);

    /// How long a peer has been silent, if that is too long.
    /// \param timeouts  how many of them it is granted
    std::optional<std::chrono::milliseconds> lost(Deadline last_heard, int timeouts = 1) const;
    /// The same for the peer of a link; to be asked at every beat. Twice the time if its machine is
    /// there and the network between us is bad: TCP's repetitions come later and later. As
    /// lost_with_machine() if the peer has said that it is busy.
    std::optional<std::chrono::milliseconds> lost(Link& link) const {
        if (link.peer_is_busy()) return lost_with_machine(link);
        return lost(link.last_heard(), link.loses_packets() ? 2 : 1);
    }
    /// The same for a peer whose end would close the link: while its machine answers it is starved,
    /// or stopped, and has four times the time.
    std::optional<std::chrono::milliseconds> lost_with_machine(Link& link) const {
        const bool bad_network = link.loses_packets();
        return lost(link.last_heard(), link.machine_answers() ? 4 : bad_network ? 2 : 1);
    }

    std::chrono::milliseconds timeout() const { return timeout_; }

private:
    Timer timer_;
    std::chrono::milliseconds timeout_;
    Deadline awake_since_ = Clock::now();
};

/// "last heard 3.0 s ago"
std::string describe_silence(std::chrono::milliseconds silence);

}  // namespace dtrun
