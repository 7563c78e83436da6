#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "base/result.h"
#include "launcher/plan/options.h"
#include "rendezvous/wire/router.h"
#include "rendezvous/wire/start_messages.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace dtrun::head {

/// What a starter tells the head, and asks of it.
class StartEvents {
public:
    virtual ~StartEvents() = default;
    /// \param phase  what the host does now, e.g. "ssh authentication"; a literal
    virtual void host_phase(HostId host, const char* phase) = 0;
    /// Its agent cannot be started, or did not join.
    virtual void host_failed(HostId host, const Error& why) = 0;
    virtual bool has_failed(HostId host) const = 0;
    /// The host has joined, is done, or has failed: nobody waits for it any more.
    virtual bool is_settled(HostId host) const = 0;
    /// Hosts may still be started: not all are ready, and the job does not end.
    virtual bool is_starting() const = 0;
    virtual bool is_ending() const = 0;  ///< the job is
    virtual void starter_idle() = 0;     ///< is_busy() has become false
};

/// What a host does that has its configuration and has not joined.
inline const char* joining_phase(const plan::Options& options) {
    return options.health_check.empty() ? "waiting for its answer"
                                        : "waiting for its answer, after its --health-check";
}
/// And how long it may take for that, once its agent runs: an agent also reports why it cannot connect.
inline std::chrono::milliseconds joining_limit(const plan::Options& options) {
    constexpr std::chrono::seconds kSlack{2};
    const bool is_checked = !options.health_check.empty();
    return options.connect_timeout + kSlack +
           (is_checked ? kHealthCheckLimit : std::chrono::seconds(0));
}

/// Gets the job's agent onto some of its hosts, gives it its configuration, and holds its lifeline.
///
/// Thread: the loop's. Lifetime: `events` outlives it; the owner awaits join() before destruction.
class HostStarter {
public:
    virtual ~HostStarter() = default;

    /// It receives what agents say to who has started them; before start().
    virtual void subscribe(Router<HostId>&) {}
    /// Starts the agents of all its hosts. Once.
    virtual void start(StartEvents& events) = 0;
    /// Starts the agent of one of them once more: the last one is lost, or could not be started.
    /// Nothing happens with hosts of another starter.
    virtual void connect(HostId host) = 0;
    /// A relay may have joined, or the job may end: tasks that wait for this check again.
    virtual void look() = 0;
    /// A host that had joined is lost. Its starter ends what the job may have left there.
    virtual void host_lost(HostId host) = 0;
    /// Nothing of the job is left on a host of a job that goes on without it.
    virtual void host_left(HostId host) = 0;
    /// Whether something is under way that the end of the job waits for.
    virtual bool is_busy() const = 0;
    /// To be called at every beat. \param late  by how much it is, as this process did not run; mostly 0
    virtual void beat(Clock::duration late) = 0;
    /// Ends what it has started itself, once the agents have been told to end.
    /// \param hurry  the user waits for nothing any more
    virtual asio::awaitable<void> end(bool hurry) = 0;
    /// After end(): why its agents are gone, if somebody else has ended them all; empty: not known.
    virtual std::string why_gone() const { return {}; }
    /// Everything that is still under way stops.
    virtual asio::awaitable<void> join() = 0;
};

}  // namespace dtrun::head
