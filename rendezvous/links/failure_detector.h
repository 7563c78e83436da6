#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "rendezvous/links/link.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace dtrun {

/// The heartbeat of a process: calls back every kHeartbeatInterval, and tells which peers are lost.
///
/// Time during which this process itself did not run, since it was stopped or starved, is not
/// counted as silence of its peers.
///
/// Thread: the executor's. Cancellation: run() ends with its task.
class FailureDetector {
public:
    /// \param timeout  silence after which a peer is lost
    FailureDetector(asio::any_io_executor executor, std::chrono::milliseconds timeout);

    /// \param beat  sends heartbeats and checks peers for silence
    asio::awaitable<void> run(std::function<void()> beat);

    /// How long a peer has been silent, if that is too long.
    /// \param timeouts  how many timeouts the peer is granted
    std::optional<std::chrono::milliseconds> lost(Deadline last_heard, int timeouts = 1) const;
    /// lost() for a link's peer; to be asked at every beat. The peer has two timeouts if its
    /// machine is there and the network loses packets, as TCP retransmits later and later. For a
    /// peer that has said it is busy this is lost_with_machine().
    std::optional<std::chrono::milliseconds> lost(Link& link) const {
        if (link.peer_is_busy()) return lost_with_machine(link);
        return lost(link.last_heard(), link.loses_packets() ? 2 : 1);
    }
    /// lost() for a peer whose exit would close the link: while its machine acknowledges, the peer
    /// is only starved or stopped, and has four timeouts.
    std::optional<std::chrono::milliseconds> lost_with_machine(Link& link) const {
        const bool bad_network = link.loses_packets();
        return lost(link.last_heard(), link.machine_answers() ? 4 : bad_network ? 2 : 1);
    }

    /// Before this moment this process did not run for a while, or not at all.
    Deadline awake_since() const;

    /// How long this process itself did not run, if that was longer than a timeout and ended less
    /// than a timeout ago: its peers may have taken it for lost.
    std::optional<std::chrono::milliseconds> pause() const;

    std::chrono::milliseconds timeout() const { return timeout_; }
    /// Peers that were told to wait longer for us are waited for as long.
    void be_as_patient_as(std::chrono::milliseconds timeout) {
        timeout_ = std::max(timeout_, timeout);
    }

private:
    Timer timer_;
    std::chrono::milliseconds timeout_;
    Deadline awake_since_ = Clock::now();
    Deadline next_ = Clock::now();  ///< beat
    Clock::duration pause_{};       ///< that ended at awake_since_
};

/// "last heard 3.0 s ago"
std::string describe_silence(std::chrono::milliseconds silence);
/// "; dtrun itself had not run for 12.0 s: ...", or nothing; to be added to why a peer is lost.
std::string describe_pause(std::optional<std::chrono::milliseconds> pause);

}  // namespace dtrun
