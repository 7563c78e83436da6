#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/heartbeat.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dtrun {

/// What a beat says of the time until the next one: kStillHeartbeatInterval, kCalmHeartbeatInterval, or
/// kHeartbeatInterval.
enum class Pace : std::uint8_t { still, calm, alert };

/// The heartbeat of a process: calls back at an interval, and tells which peers are lost.
///
/// A process that is below another one beats when that one does, by follow(), so that one wake-up
/// serves both; its own timer then only stands in for a beat that does not come.
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
    asio::awaitable<void> run(std::function<Pace()> beat);
    /// The process above has sent its heartbeat: sends ours at once. Nothing happens before run().
    void follow();
    /// Something is going on: the next beat comes within the interval of this pace.
    void hasten(Pace pace);
    /// For a calm beat, at its end: rests a moment if this process does next to nothing, so that the answers of
    /// many peers wake it once. \param asked  peers that were sent a heartbeat
    void rest(std::size_t asked);
    /// Whether the next beat comes later than kHeartbeatInterval.
    bool is_calm() const { return next_ > after(kHeartbeatInterval); }

    /// How long a peer has been silent, if that is too long.
    /// \param timeouts  how many timeouts the peer is granted
    std::optional<std::chrono::milliseconds> lost(Deadline last_heard, int timeouts = 1) const;
    /// lost() for a link's peer; to be asked at every beat. The peer has two timeouts if its
    /// machine is there and the network loses packets, as TCP retransmits later and later. For a
    /// peer that has said it is busy this is lost_with_machine().
    std::optional<std::chrono::milliseconds> lost(Link& link) const {
        if (link.peer_is_busy()) return lost_with_machine(link);
        const bool bad_network = link.loses_packets();
        return lost(link.last_heard(), bad_network ? 2 : 1);
    }
    /// lost() for a peer whose exit would close the link: while its machine acknowledges, the peer
    /// is only starved or stopped, and has four timeouts.
    std::optional<std::chrono::milliseconds> lost_with_machine(Link& link) const {
        const bool bad_network = link.loses_packets();
        if (!lost(link.last_heard())) return std::nullopt;  // the usual case asks TCP but once
        return lost(link.last_heard(), link.machine_answers() ? 4 : bad_network ? 2 : 1);
    }
    /// Whether a peer that sends a heartbeat at each of our beats should have been heard by now.
    bool is_late(const Link& link) const;

    /// Before this moment this process did not run for a while, or not at all.
    Deadline awake_since() const;

    /// How long this process itself did not run, if that was longer than a timeout and ended less
    /// than a timeout ago: its peers may have taken it for lost.
    std::optional<std::chrono::milliseconds> pause() const;
    /// How much too late the present beat comes, or the last one; 0 if no more than any machine is.
    Clock::duration lateness() const { return lateness_; }

    std::chrono::milliseconds timeout() const { return timeout_; }
    /// Peers that were told to wait longer for us are waited for as long.
    void be_as_patient_as(std::chrono::milliseconds timeout) {
        timeout_ = std::max(timeout_, timeout);
    }

private:
    Pace beat(Deadline now);
    std::chrono::milliseconds interval(Pace pace) const;
    Deadline may_have_stopped_at() const;

    Timer timer_;
    std::chrono::milliseconds timeout_;
    std::function<Pace()> beat_;  ///< empty: it does not run
    Deadline awake_since_ = Clock::now();
    Deadline last_ = Clock::now();  ///< beat
    Deadline next_ = Clock::now();  ///< beat, unless we follow somebody who is earlier
    Clock::duration lateness_{};
    Clock::duration pause_{};          ///< that ended at awake_since_
    std::chrono::nanoseconds used_{};  ///< processor time of this process until the last rest()
};

/// "last heard 3.0 s ago"
std::string describe_silence(std::chrono::milliseconds silence);
/// "; dtrun itself had not run for 12.0 s: ...", or nothing; to be added to why a peer is lost.
std::string describe_pause(std::optional<std::chrono::milliseconds> pause);

}  // namespace dtrun
