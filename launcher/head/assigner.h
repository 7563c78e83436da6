#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "launcher/head/job.h"
#include "launcher/head/job_output.h"
#include "launcher/head/stop_deadlines.h"
#include "launcher/inspect/deadlock_detector.h"
#include "launcher/output/stdin_pump.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/job/world.h"
#include "rendezvous/links/backpressure.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/router.h"

#include <cstdint>
#include <functional>
#include <string>

namespace dtrun {
class DirectStoreServer;
}

namespace dtrun::head {

/// What the parts of a head work on together; the Head owns all of it.
struct JobContext {
    asio::any_io_executor executor;
    const plan::JobSpec& spec;
    Hosts& hosts;
    Router<HostId>& agents;  ///< what hosts say
    Job& job;
    StopDeadlines& stop_deadlines;
    inspect::DeadlockDetector& deadlocks;
    JobOutput& output;
    output::StdinPump& input;
    std::function<void()> decide;  ///< carries out what `job` has decided; after every event for it
    std::function<void()> started;        ///< all hosts are ready: nobody is waited for any more
    std::function<void(HostId)> connect;  ///< gets an agent onto a host, or does it once more
};

/// Decides which ranks of the job run on which host, and when: this head (OwnAssigner), or a daemon of
/// whose job it is a member (DaemonAssigner).
///
/// Thread: the loop's. Lifetime: the owner awaits join() before destruction.
class Assigner {
public:
    virtual ~Assigner() = default;

    /// The ranks' requests, fences and heartbeats, as an agent sends them. Errc: invalid_input (it is to be cut off)
    virtual Result<void> exchange(PeerId agent, const FrameView& frame) = 0;
    virtual void agent_came(PeerId) {}
    virtual void agent_went(PeerId) {}  ///< also of one that has not come
    /// The destination of agents' frames if it can be full, else nullptr.
    virtual Backpressure* towards() { return nullptr; }
    /// By which ranks ask the store without their agents; null: it is not here.
    virtual DirectStoreServer* direct_store() { return nullptr; }
    virtual void signalled(int) {}  ///< the user stops this process (SIGTSTP), or lets it go on

    /// The job has this host, with so many slots, or 0 if it may not use it any more. Only in elastic jobs.
    virtual void listed(HostId, std::uint32_t) {}
    virtual void left(HostId) {}  ///< nothing of the job is left there
    virtual void entered(HostId host, Member member) = 0;
    virtual void lost(HostId host, const std::string& why) = 0;
    virtual void begin() = 0;  ///< every host is ready; not in elastic jobs
    virtual void failed(HostId, const std::string&) {}  ///< why no agent can be used there
    virtual void tick() {}                              ///< at every beat
    /// Whether it is enough for tick(), and for the ranks' progress, to come at a calm pace.
    virtual bool is_calm(Deadline now) const = 0;
    /// Ends all ranks because this one failed, and starts them again. Only in OwnAssigner's jobs.
    virtual void restart(const Exited& because) = 0;
    virtual void wake() {}  ///< a host is lost, or the job ends: waiting tasks check again

    /// Whether the end of a rank counts.
    virtual bool is_relevant(const Exited& exited) const { return is_current(exited.generation); }
    /// Whether news of this generation's ranks counts.
    virtual bool is_current(std::uint64_t generation) const = 0;
    /// Whether the head itself watches who waits for whom.
    virtual bool watches_waits() const = 0;
    /// A rank has ended, perhaps only because the peers that it had are gone.
    /// \return true: the assigner tells the job later, unless a new generation is under way by then
    virtual bool defer_failure(HostId, const Exited&) { return false; }

    virtual void ending() {}  ///< the job ends: a daemon that assigns ranks is told
    virtual void hurry() {}   ///< the user wants it over: leave() waits no longer
    /// Tells a daemon how the job has ended; after all hosts are done.
    virtual asio::awaitable<void> leave() { co_return; }
    virtual asio::awaitable<void> join() = 0;

protected:
    /// Tells the user what has become of ranks' connections to a lost host.
    void connections_reset(const std::string& host, const ResetStatus& news);

private:
    bool warned_of_severing_ = false;
};

}  // namespace dtrun::head
