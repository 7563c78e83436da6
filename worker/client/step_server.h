#pragma once

#include "base/fd.h"
#include "rendezvous/hub.h"
#include "worker/client/outcome.h"
#include "worker/client/patience.h"
#include "worker/client/private_fd.h"
#include "worker/client/step_key.h"
#include "worker/client/step_peer.h"
#include "worker/client/step_roll.h"
#include "worker/client/strangers.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

namespace dtrun::embedded {

/// The store and the fences of a Slurm step, served over TCP by a thread of rank 0's process; to
/// the ranks it is what an agent is. Ranks are welcomed once all of them have said hello. One that
/// leaves before ends the step for everybody, one that leaves later fails the fences.
///
/// Thread: its own one has everything but the roll; functions may be called by any.
/// Lifetime: the destructor cuts everybody off, and joins the thread. A forked child has nothing of
/// it but the memory.
class StepServer final : private Outbox {
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
    Outcome<void> wait_for_others(const Patience& patience);

private:
    /// A peer with so much unsent that we have stopped reading from it.
    struct Full {
        Moment due;  ///< then it is looked at
        PeerId peer = 0;
        std::uint64_t sent_bytes = 0;  ///< of it, up to here
    };
    using Peers = std::unordered_map<PeerId, std::unique_ptr<StepPeer>>;

    explicit StepServer(const SlurmStep& step);
    Outcome<void> add_own_end();

    void run();
    void turn();
    bool is_over();
    void take_orders();
    void end_now(const std::string& why);
    Moment next_moment() const;
    void accept_all();
    void set_accepting(bool accepting);
    void watch(int fd, std::uint64_t what, std::uint32_t events);
    StepPeer& add(PrivateFd socket);
    void cut_off_late_strangers();
    void flush_all();
    void hear_the_full();
    bool flush(StepPeer& peer);

    // step_server_peers.cpp: what peers say
    void read(StepPeer& peer);
    void handle_received(StepPeer& peer);
    Result<void> handle(StepPeer& peer);
    Result<void> on_record(StepPeer& peer, std::string_view record);
    Result<void> on_proof(StepPeer& peer, std::string_view proof);
    Result<void> on_hello(StepPeer& peer, const FrameView& frame);
    Result<void> on_frame(StepPeer& peer, const FrameView& frame);
    std::unexpected<Error> refuse(StepPeer& peer, std::string reason, bool later);
    void enter(StepPeer& peer, Rank rank);
    void welcome(StepPeer& peer);
    void lose(PeerId id);
    void send(StepPeer& peer, Bytes bytes, bool asked = false);

    void to_peer(PeerId id, FrameType type, std::string_view payload) override;
    void to_root(FrameType, std::string_view) override {}

    const SlurmStep step_;
    std::string greeting_;
    Credentials credentials_;
    PrivateFd listener_;
    Fd poll_;
    Fd wake_;  ///< eventfd: there are orders
    PrivateFd own_end_;
    StepRoll roll_;

    // Of the thread.
    Hub hub_;
    Peers peers_;
    PeerId last_peer_ = 0;
    std::vector<PeerId> unflushed_;
    std::vector<PeerId> resumed_;  ///< heard again: what was received before is to be handled
    std::deque<Full> full_due_;
    Strangers strangers_;
    bool accepting_ = false;
    Moment accept_again_ = Moment::max();       ///< after we were out of descriptors
    std::shared_ptr<const Bytes> last_fenced_;  ///< the same for many: kept once
    bool welcomed_ = false;
    std::optional<Moment> ending_;  ///< the job is over: everybody is cut off then
    std::vector<char> scratch_;

    std::thread thread_;
};

}  // namespace dtrun::embedded
