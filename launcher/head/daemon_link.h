#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/transport/dial.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/gathering.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/router.h"
#include "rendezvous/wire/sent_frames.h"

#include <memory>
#include <optional>
#include <string>

namespace dtrun::head {

/// What a daemon says to a member.
class DaemonLinkEvents {
public:
    virtual ~DaemonLinkEvents() = default;
    /// An order for the host's agent, each once, in order. Errc: invalid_input
    virtual Result<void> daemon_orders(const FrameView& frame) = 0;
    virtual void daemon_stopped(const Stop& stop) = 0;  ///< it has ended the job, or ends itself
    /// A frame for an Exchange. Errc: invalid_input
    virtual Result<void> daemon_exchanged(const FrameView& frame) = 0;
    /// A connection is made, the first or a new one: unanswered requests are to be sent again.
    virtual void daemon_is_back() = 0;
    virtual Heartbeat progress() = 0;
    /// The job waits for more ranks, or runs, maybe without this member; nothing: as far as the daemon says.
    virtual void daemon_gathers(const std::optional<Gathering>&) {}
    /// It cannot be reached for this reason, and is tried again. \param until  then it is lost
    virtual void daemon_is_awaited(const Error&, Deadline) {}
    /// The daemon is lost, or has refused us. The last call.
    virtual void daemon_lost(const Error& why) = 0;
};

struct DaemonLinkOptions {
    std::chrono::milliseconds connect_timeout{10'000};
    std::chrono::milliseconds heartbeat_timeout{kHeartbeatTimeout};
    /// How long to wait for the return of a daemon that is down, unless the network to it is cut.
    std::chrono::milliseconds return_limit{60'000};
    /// How long to try it at first, since it need not be there yet, nor its name be known; 0: once.
    std::chrono::milliseconds first_limit{0};
    bool is_node = false;  ///< it is one of the nodes that run the same command
};

/// A member's connection to its daemon, made anew whenever it breaks.
///
/// Thread: the executor's. Lifetime: `events` outlives it; the owner calls leave(), and stops the task
/// of run().
class DaemonLink final : public Backpressure {
public:
    DaemonLink(asio::any_io_executor executor, plan::DaemonTarget target, DaemonLinkOptions options,
               DaemonLinkEvents& events);

    /// Enters with `enter`, and serves until the end. Errors are told by daemon_lost().
    asio::awaitable<void> run(Enter enter);

    void send(FrameType type, std::string_view payload);  ///< dropped while there is no connection
    /// Tells the daemon something of the ranks, which arrives once, over whatever connections there are.
    void say(const Bytes& frame);
    bool is_full() const override { return link_ && link_->is_full(); }
    asio::awaitable<void> room() override;
    /// Says goodbye to the daemon, if it is there, and waits a moment for it to arrive.
    asio::awaitable<void> leave(std::string why);

    /// Before run() is cancelled: it connects no more, and tells no errors.
    void stop() { is_leaving_ = true; }
    void stop_waiting();  ///< for the daemon, in leave(): the user wants it over
    /// Who receives what the daemon says.
    const Router<>& router() const { return router_; }

private:
    asio::awaitable<void> keep_connected();
    asio::awaitable<Result<void>> look_up(Deadline limit);
    asio::awaitable<Result<Connection>> attempt(Deadline limit);
    asio::awaitable<Result<Connection>> connect_first();
    asio::awaitable<Result<Connection>> connect(Deadline limit);
    asio::awaitable<Result<void>> serve();
    void subscribe();
    Result<void> numbered(std::string_view payload);
    Result<void> heard(const Heard& heard);
    void stopped(const Stop& stop);
    void give_up(const Error& why);
    void beat();

    asio::any_io_executor executor_;
    plan::DaemonTarget target_;
    DaemonLinkOptions options_;
    DaemonLinkEvents& events_;
    Router<> router_;  ///< what the daemon says
    Enter enter_;
    std::unique_ptr<transport::Pool> pool_;  ///< while the daemon's name is not known
    std::shared_ptr<Link> link_;             ///< with whoever waits for room
    FailureDetector detector_;
    Timer over_;  ///< cancelled when run() ends
    bool running_ = false;
    SentFrames sent_;
    HeardFrames heard_;
    bool is_let_in_ = false;  ///< by the daemon, over the connection that there is
    bool is_leaving_ = false;
    bool ended_ = false;   ///< the daemon has ended the job
    bool silent_ = false;  ///< the daemon's machine does not answer: it was given up
};

}  // namespace dtrun::head
