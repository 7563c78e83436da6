#pragma once

#include "base/numbered.h"
#include "launcher/head/assigner.h"
#include "launcher/head/uplink.h"
#include "rendezvous/exchange/relay.h"

#include <optional>
#include <string>

namespace dtrun::head {

/// Takes the assignment of this one host's ranks from a daemon, of whose job the host is a member
/// (`dtrun join`).
class DaemonAssigner final : public Assigner, private UplinkEvents, private Backpressure {
public:
    DaemonAssigner(JobContext context, Outbox& outbox);

    Exchange& exchange() override { return relay_; }
    void to_root(FrameType type, std::string_view payload) override;
    Backpressure* towards() override { return this; }
    void entered(HostId host, Member member) override;
    void lost(HostId, const std::string&) override {}
    void begin() override;
    void restart(const Exited&) override {}  // a daemon's restarts are its own
    bool is_current(std::uint64_t) const override { return true; }
    bool watches_waits() const override { return false; }
    bool hold_back(HostId host, const Exited& exited) override;
    void ending() override;
    void hurry() override;
    asio::awaitable<void> leave() override;
    asio::awaitable<void> join() override;

private:
    void paused(HostId host, const Paused& paused);
    void daemon_assigned(const Assign& assign) override;
    void daemon_proposed(const Propose& propose) override;
    void daemon_stopped(const Stop& stop) override;
    Result<void> daemon_exchanged(const FrameView& frame) override;
    void daemon_is_back() override;
    Heartbeat progress() override;
    void daemon_lost(const Error& why) override;
    bool is_full() const override;  ///< of the connection to the daemon
    asio::awaitable<void> room() override;
    asio::awaitable<void> believe_later(HostId host, Exited exited);
    void tell_failed();
    void tell(const std::string& news);

    JobContext context_;
    Relay relay_;
    bool was_there_ = false;          ///< the daemon, at some time
    std::unique_ptr<Uplink> uplink_;  ///< once the agent is ready
    Member member_;                   ///< the host, as its agent has described it
    std::uint64_t generation_ = 0;    ///< that runs here
    std::uint64_t proposed_ = 0;      ///< the newest that the daemon has proposed
    /// The first rank here that has failed in this generation, if the daemon counts these.
    struct Failed {
        Exited exited;
        std::string why;
    };
    std::optional<Failed> failed_;
    TaskGroup tasks_;
};

}  // namespace dtrun::head
