#pragma once

#include "base/loop/waiting_news.h"
#include "base/numbered.h"
#include "launcher/head/assigner.h"
#include "launcher/head/master_election.h"
#include "rendezvous/asking/direct_store_server.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/hub_timer.h"
#include "rendezvous/job/change_notice.h"
#include "rendezvous/job/membership.h"
#include "rendezvous/job/world.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun::head {

/// Assigns the ranks of a job of this head's own, as Membership decides: all at once, and all again after a
/// failure or, in an elastic job, when a host is lost or comes.
class OwnAssigner final : public Assigner {
public:
    OwnAssigner(JobContext context, Outbox& outbox);

    Result<void> exchange(PeerId agent, const FrameView& frame) override;
    void agent_came(PeerId agent) override { hub_.add_peer(agent, PeerKind::subtree, kNoRank); }
    void agent_went(PeerId agent) override { hub_.remove_peer(agent); }
    void listed(HostId host, std::uint32_t slots) override;
    void left(HostId host) override;
    void entered(HostId host, Member member) override;
    void lost(HostId host, const std::string& why) override;
    void begin() override;
    void failed(HostId host, const std::string& why) override;
    bool defer_failure(HostId host, const Exited& exited) override;
    void restart(const Exited& because) override;
    void tick() override;
    bool is_calm(Deadline now) const override;
    void wake() override;
    bool is_current(std::uint64_t generation) const override;
    /// In an elastic job processes live through generations; what has ended before is known by its place.
    bool is_relevant(const Exited& exited) const override {
        return is_elastic() || is_current(exited.generation);
    }
    bool watches_waits() const override { return true; }
    DirectStoreServer* direct_store() override { return &direct_store_; }
    asio::awaitable<void> join() override;

private:
    /// A world that is to begin.
    struct World {
        std::uint64_t generation = 0;
        std::vector<RankAssignment> ranks;  ///< by rank
    };

    void paused(HostId host, const Paused& paused);
    void process_says(HostId host, const RejoinStatus& news);
    void ready_to_commit(HostId host, const ReadyToCommit& ready);
    void remember_failure(const Exited& because);
    void end_processes(const std::vector<std::pair<HostId, SlotIndex>>& places);
    void prepare(const std::vector<RankAssignment>& ranks);
    void tell_change(const std::optional<Membership::Warning>& warning);
    bool is_elastic() const { return context_.spec.options.elastic.has_value(); }
    void obey();
    void release(HostId host);
    asio::awaitable<void> tell_losses();
    asio::awaitable<void> turn() const;
    void reset_connections(std::span<const Membership::Loss> losses);
    void pause(const Membership::Pausing& pausing);
    void end(const Membership::End& end);
    bool is_wanted(std::uint64_t generation) const;
    asio::awaitable<void> start_worlds();
    asio::awaitable<void> wait_after_failure();
    std::map<HostId, Assign> assignments(const World& world) const;
    plan::SlotId place_of(const RankAssignment& assigned) const;
    void start_ranks(const World& world, std::map<HostId, Assign> assigns);
    void tell_world(const World& world) const;
    std::string waiting_text(const Membership::Shortage& shortage) const;

    JobContext context_;
    Membership membership_;
    ChangeNotice notice_;
    PerHost<Member> members_;        ///< of hosts that have joined
    PerHost<std::string> unusable_;  ///< why a host cannot be used, as far as the user knows
    DirectStoreServer direct_store_;
    Hub hub_;
    HubTimer hub_timer_;
    MasterElection election_;
    std::vector<Membership::Loss> losses_;                         ///< of this turn of the loop
    std::map<std::string, std::vector<std::string>> losses_told_;  ///< why -> hosts, for the user
    std::optional<World> next_;   ///< to be started when start_worlds() is done with the one before
    std::uint64_t starting_ = 0;  ///< the generation that start_worlds() starts
    bool is_starting_ = false;
    std::optional<report::JobOutcome>
        restart_because_;  ///< reported once all output of the rank is there
    std::optional<Exited> last_failure_;
    std::uint32_t restarts_at_once_ = 0;  ///< in a row
    Deadline started_at_{};               ///< when this generation's ranks were started
    WaitingNews news_;
    Timer delay_;  ///< of a restart
    TaskGroup tasks_;
};

}  // namespace dtrun::head
