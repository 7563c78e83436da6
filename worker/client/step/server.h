#pragma once

#include "rendezvous/exchange/hub.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/private_fd.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/step/key.h"
#include "worker/client/step/listener.h"
#include "worker/client/step/peers.h"
#include "worker/client/step/poll.h"
#include "worker/client/step/roster.h"
#include "worker/client/step/unauthenticated_peers.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace dtrun::embedded {

/// The store and the fences of a Slurm step, served over TCP by a thread of rank 0's process; to
/// the ranks it is what an agent is. Ranks are welcomed once all of them have said hello. One that
/// leaves before ends the step for everybody, one that leaves later fails the fences.
///
/// What is said is here: who is let in, what he is told, and how the step ends. StepPoll, StepListener
/// and StepPeers have the descriptors, UnauthenticatedPeers who must prove himself in time, StepRoster what rank
/// 0's callers and the thread share, and the Hub the store and the fences.
///
/// Thread: its own one has everything but the roster and the wake-up; functions may be called by any.
/// Locks: the roster's only.
/// Lifetime: the destructor cuts everybody off, and joins the thread. A forked child has nothing of
/// it but the memory.
class StepServer final : private Outbox, private StepPeers::Handler {
public:
    /// Listens at the first of the step's ports that is free, on every interface.
    /// \param key  without a secret yet, unless it is from a file
    /// Failures: closed (no port, or munged), internal (out of descriptors or threads)
    static Outcome<std::unique_ptr<StepServer>> start(const SlurmStep& step, StepKey& key);
    ~StepServer() override;
    StepServer(const StepServer&) = delete;
    StepServer& operator=(const StepServer&) = delete;

    /// Rank 0's connection, which needs no proof and no hello; once.
    PrivateFd take_own_end() { return std::move(own_end_); }

    /// Rank 0 has waited for all ranks, in vain: tells everybody, and lets nobody in any more.
    /// \return "ranks 2 and 3 of 4 have not come within 1.0 s", and what keeps them from it here;
    ///         nothing, and nothing is done, if all have come
    std::optional<std::string> end_if_missing(std::chrono::milliseconds waited);
    /// Tells everybody that the job is over, and why. Returns at once.
    void end(std::string why);
    /// Waits until the connections of all ranks but 0 have ended. Helpers are not waited for: they
    /// may wait for us. Failures: timed_out, cancelled
    Outcome<void> wait_for_others(const WaitContext& context);

private:
    explicit StepServer(const SlurmStep& step);
    Outcome<void> add_own_end();

    void run();
    void turn();
    bool is_over();
    void take_orders();
    void end_now(const std::string& why);
    Moment next_moment() const;
    void accept_all();
    void cut_off_late_strangers();
    void flush();

    // server_peers.cpp: what peers say
    Result<void> on_received(StepPeer& peer) override;
    void on_lost(const StepPeer& peer) override;
    Result<void> on_hello(StepPeer& peer, const FrameView& frame);
    Result<void> on_frame(StepPeer& peer, const FrameView& frame);
    std::unexpected<Error> refuse(StepPeer& peer, std::string reason, bool later);
    void enter(StepPeer& peer, Rank rank);
    void welcome(StepPeer& peer);
    void send(StepPeer& peer, Bytes bytes);

    void to_peer(PeerId id, FrameType type, std::string_view payload) override;
    void to_root(FrameType, std::string_view) override {}

    const SlurmStep step_;
    std::string greeting_;
    ClientCredentials credentials_;
    PrivateFd own_end_;
    StepPoll poll_;
    StepRoster roster_;

    // Of the thread, once it runs.
    StepListener listener_;
    Hub hub_;
    StepPeers peers_;
    UnauthenticatedPeers unauthenticated_;
    std::shared_ptr<const Bytes> last_fenced_;  ///< the same for many: kept once
    bool welcomed_ = false;
    std::optional<Moment> ending_;  ///< the job is over: everybody is cut off then

    std::thread thread_;
};

}  // namespace dtrun::embedded
