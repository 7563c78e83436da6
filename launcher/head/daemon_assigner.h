#pragma once

#include "base/numbered.h"
#include "launcher/head/assigner.h"
#include "launcher/head/daemon_link.h"
#include "launcher/inspect/member_news.h"
#include "rendezvous/wire/router.h"

#include <memory>
#include <optional>
#include <string>

namespace dtrun::head {

/// Passes on what a daemon says to the agent of this one host, which is a member of the daemon's job (`dtrun join`), and
/// what the agent says of its ranks. The daemon decides; this head only shows what becomes of the ranks here.
class DaemonAssigner final : public Assigner, private DaemonLinkEvents, private Backpressure {
public:
    explicit DaemonAssigner(JobContext context);

    Result<void> exchange(PeerId agent, const FrameView& frame) override;
    void signalled(int signal) override;
    Backpressure* towards() override { return this; }
    void entered(HostId host, Member member) override;
    void lost(HostId, const std::string&) override {}
    void begin() override;
    void restart(const Exited&) override {}  // a daemon's restarts are its own
    void tick() override;
    /// The daemon wants to know of progress soon.
    bool is_calm(Deadline) const override { return progress_.reporting == 0; }
    bool is_current(std::uint64_t) const override { return true; }
    bool watches_waits() const override { return false; }
    bool defer_failure(HostId host, const Exited& exited) override;
    void ending() override;
    void hurry() override;
    asio::awaitable<void> leave() override;
    asio::awaitable<void> join() override;

private:
    void paused(HostId host, const Paused& paused);
    void begin_generation(const Assign& assign);
    void pause(Pause pause);
    Result<void> daemon_orders(const FrameView& frame) override { return orders_.route(frame); }
    void daemon_stopped(const Stop& stop) override;
    Result<void> daemon_exchanged(const FrameView& frame) override;
    void daemon_is_back() override;
    Heartbeat progress() override { return progress_; }
    void daemon_gathers(const std::optional<Gathering>& gathering) override {
        news_.daemon_says(gathering);
    }
    void daemon_is_awaited(const Error& why, Deadline until) override {
        news_.daemon_away(why, until);
    }
    void daemon_lost(const Error& why) override;
    bool is_full() const override;  ///< of the connection to the daemon
    asio::awaitable<void> room() override;
    void tell(std::uint64_t generation, const std::string& news);

    JobContext context_;
    Router<> orders_;  ///< of the daemon
    /// Whether the agent knows of the connection to the daemon: what it sent before, it says once more.
    bool agent_knows_ = false;
    std::uint64_t connections_ = 0;            ///< to the daemon, until now
    Heartbeat progress_;                       ///< of the ranks, as the agent has told of it
    bool was_there_ = false;                   ///< the daemon, at some time
    std::unique_ptr<DaemonLink> daemon_link_;  ///< once the agent is ready
    Member member_;                            ///< the host, as its agent has described it
    MemberId id_{};
    std::optional<Exited> failed_;  ///< the first rank here that has failed in this generation
    inspect::MemberNews news_;
    TaskGroup tasks_;
};

}  // namespace dtrun::head
