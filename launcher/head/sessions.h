#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "launcher/head/agent_session.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/links/send_turns.h"

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <utility>
#include <vector>

namespace dtrun::head {

/// The agents that are connected, and the Outbox by which the head's Exchange sends to them.
///
/// Thread: the loop's. Lifetime: what it was given outlives it; the owner awaits join() before
/// destruction. A session whose connection has ended stays in memory only while
/// Hosts refer to it.
class Sessions final : public Outbox {
public:
    /// \param closed  called when an agent's connection has ended, as it should after `done`; not after close()
    Sessions(asio::any_io_executor executor, AgentRouter& router, const Hosts& hosts,
             std::function<void(AgentSession&, const Error& why)> closed);

    /// Serves a connection that has proved to be of this job.
    /// \param towards  as Link::serve()'s
    void admit(Connection connection, Backpressure* towards);

    /// Closes the session's connection, and sends nothing to it any more.
    void close(AgentSession& session);
    struct Silence {
        /// Agents silent for too long, and for how long.
        std::vector<std::pair<AgentSession*, std::chrono::milliseconds>> lost;
        bool is_any_late = false;  ///< an agent should have answered the last heartbeat by now
        std::size_t asked = 0;     ///< agents that were sent a heartbeat
    };
    /// Sends everybody a heartbeat, which is answered by one.
    Silence beat(const FailureDetector& detector);

    void to_peer(PeerId peer, FrameType type, std::string_view payload) override;
    void share_with_peer(PeerId peer, FrameType type, std::string_view payload,
                         const SharedBytes& rest) override;
    void to_root(FrameType, std::string_view) override {}  // the Exchange is the root

    /// Sessions in memory.
    std::size_t size() const { return sessions_.size(); }

    asio::awaitable<void> join();  ///< closes everything

private:
    using Session = std::list<AgentSession>::iterator;
    asio::awaitable<void> run(Session session, Backpressure* towards);
    asio::awaitable<void> write(Session session);
    void task_ended(Session session);

    const AgentRouter& router_;
    const Hosts& hosts_;
    std::function<void(AgentSession&, const Error&)> closed_;
    SendTurns turns_;
    std::list<AgentSession> sessions_;
    std::map<PeerId, AgentSession*> open_;
    PeerId last_peer_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun::head
