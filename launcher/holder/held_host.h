#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/login_gate.h"
#include "launcher/transport/retries.h"
#include "rendezvous/links/backpressure.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/warm_messages.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace dtrun::holder {

/// What a held host tells its holder.
class HeldEvents {
public:
    virtual ~HeldEvents() = default;
    /// What an agent says on its stream.
    virtual void said(const WarmStream& said) = 0;
    /// It is ready, or cannot be reached, or not yet; or it is lost, and with it all its streams.
    virtual void changed(const std::string& key) = 0;
};

/// What decides when a held host is left. Pure.
struct HoldTerms {
    std::chrono::milliseconds keep{};  ///< without any job
    Deadline used{};                   ///< when a job was last there; never to come
    bool released = false;             ///< it is left when no job is there any more

    /// \param jobs  that are there
    Deadline ends(std::size_t jobs) const {
        if (jobs > 0) return Deadline::max();
        return released ? used : used + keep;
    }
};

/// A host, and the log-in to it that is kept.
///
/// Who has input for its agents waits while it is full: what they do not take stays with the jobs.
///
/// Thread: the executor's. Lifetime: run() and write() have ended before it is destroyed; `events` outlives it.
class HeldHost final : public Backpressure {
public:
    using Open = std::function<asio::awaitable<Result<std::unique_ptr<transport::Channel>>>(
        Deadline deadline, std::function<void(const char*)> phase)>;
    struct Parts {
        asio::any_io_executor executor;
        std::string name, key, route;  ///< how jobs know it, and what leads to it
        Open open;                     ///< a channel on which the agent's program runs as a keeper
        std::function<std::string()> seen_as;
        transport::AgentCopies& copies;
        transport::LoginGate& gate;
        transport::Patience patience{};
        std::chrono::milliseconds keep{};
        Deadline awaited_until{};  ///< it is tried again, if it is not there yet
        std::uint32_t number = 0;  ///< another one for each host
    };
    HeldHost(Parts parts, HeldEvents& events);

    /// Logs in, and listens to the keeper until that ends. Not while it runs already.
    asio::awaitable<void> run();
    /// Sends what is queued for the keeper; ends when nothing is.
    asio::awaitable<void> write();

    /// Queues something for the keeper. \return write() is to be run
    bool say(std::uint32_t stream, WarmEvent event, std::string_view bytes = {});
    bool is_full() const override;
    asio::awaitable<void> room() override;
    /// Has the keeper end, or the log-in that goes on. \return as say()
    bool log_out();
    /// The same, without the keeper's help.
    void cut(std::string why);

    const std::string& name() const { return parts_.name; }
    const std::string& key() const { return parts_.key; }
    std::string seen_as() const { return parts_.seen_as(); }
    HeldState state() const { return state_; }
    /// It was not there when it was last tried, and will be tried again: whoever wants it has a patience of his own.
    bool is_awaited() const { return is_awaited_; }
    HeldStatus status() const;
    Deadline heard() const { return heard_; }
    /// Those of agents that run there.
    std::set<std::uint32_t>& streams() { return streams_; }
    HoldTerms& terms() { return terms_; }
    std::size_t jobs() const { return streams_.size(); }
    Deadline ends() const { return terms_.ends(streams_.size()); }
    /// Whether it is not to be logged into again, and nothing of a log-in is left.
    bool is_over() const {
        return state_ == HeldState::gone && !is_ending_ && Clock::now() >= ends();
    }
    bool may_log_in_again() const;
    void count_agent() { ++taken_; }

private:
    asio::awaitable<void> stay();
    asio::awaitable<void> log_in(Result<void>& done);
    asio::awaitable<Result<void>> open();
    asio::awaitable<std::string> listen();
    Result<void> take_frames();
    void take(const WarmStream& said);

    Parts parts_;
    HeldEvents& events_;
    HeldState state_ = HeldState::logging_in;  ///< or waiting for its turn, or for run()
    bool is_awaited_ = false;                  ///< between two log-ins
    std::optional<TaskGroup> logging_in_;
    std::string why_;  ///< it is gone
    std::shared_ptr<transport::Channel> channel_;
    std::string received_, unsent_;
    bool is_writing_ = false;
    Timer room_;              ///< cancelled when some of that was sent, or the host is lost
    bool is_ending_ = false;  ///< what this machine ran for the log-in
    std::set<std::uint32_t> streams_;
    HoldTerms terms_;
    Deadline heard_{}, lost_ = Deadline::min();
    std::uint32_t taken_ = 0;
};

}  // namespace dtrun::holder
