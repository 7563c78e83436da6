#pragma once

#include "base/numbered.h"
#include "launcher/head/assigner.h"
#include "launcher/head/meeting.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/hub_timer.h"
#include "rendezvous/membership/membership.h"

#include <string>
#include <utility>
#include <vector>

namespace dtrun::head {

/// Assigns the ranks of a job of this head's own: all at once as the plan has them, and all again after a
/// failure while --max-restarts allows it.
class OwnAssigner final : public Assigner {
public:
    OwnAssigner(JobContext context, Outbox& outbox);

    Exchange& exchange() override { return hub_; }
    void exchanged() override { hub_timer_.look(); }
    void to_root(FrameType, std::string_view) override {}  // this head is the root
    void entered(HostId host, Member member) override;
    void lost(HostId host, const std::string& why) override;
    void begin() override;
    void restart(const Exited& because) override;
    void paused(HostId host, std::uint64_t generation) override;
    void reached(HostId host, const Reached& reached) override;
    void wake() override;
    bool is_current(std::uint64_t generation) const override;
    bool watches_waits() const override { return true; }
    asio::awaitable<void> join() override;

private:
    asio::awaitable<void> meet();
    asio::awaitable<void> start_again();
    void start_ranks();
    bool meets_at_master() const;

    JobContext context_;
    Membership membership_;
    Hub hub_;
    HubTimer hub_timer_;
    Meeting meeting_;
    std::vector<std::pair<MemberId, Assign>> assignments_;  ///< of a generation that begins soon
    std::string master_address_;                            ///< once it is known
    JobOutcome restart_because_;  ///< reported once all output of the failed ranks is there
    Deadline started_at_{};       ///< when this generation's ranks were started
    Timer delay_;                 ///< of a restart
    TaskGroup tasks_;
};

}  // namespace dtrun::head
