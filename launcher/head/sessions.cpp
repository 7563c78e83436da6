#include "launcher/head/sessions.h"

#include "launcher/head/hosts.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/message.h"

namespace dtrun::head {

Sessions::Sessions(asio::any_io_executor executor, AgentRouter& router, const Hosts& hosts,
                   std::function<void(AgentSession&, const Error&)> closed)
    : router_(router),
      hosts_(hosts),
      closed_(std::move(closed)),
      turns_(executor),
      tasks_(std::move(executor)) {
    router.connections.on(FrameType::relayed, [](AgentSession& relay, std::string_view payload) {
        return relay.relayed(payload);
    });
}

void Sessions::admit(Connection connection, Backpressure* towards) {
    const auto session =
        sessions_.emplace(sessions_.end(), std::move(connection), ++last_peer_, router_, hosts_);
    open_[session->peer()] = &*session;
    session->link().share(turns_);
    tasks_.spawn(write(session));
    tasks_.spawn(run(session, towards));
}

asio::awaitable<void> Sessions::run(Session session, Backpressure* towards) {
    const Error why = co_await session->run(towards);
    if (why.code != Errc::cancelled) closed_(*session, why);
    task_ended(session);
}

asio::awaitable<void> Sessions::write(Session session) {
    co_await session->run_writer();
    task_ended(session);
}

/// Forgets a session after both of its tasks have ended: hosts of an elastic job come back again and again.
void Sessions::task_ended(Session session) {
    const bool has_task = session->end_task() > 0;
    if (has_task || tasks_.stopping() || open_.contains(session->peer())) return;
    if (!hosts_.is_known(*session)) sessions_.erase(session);
}

void Sessions::close(AgentSession& session) {
    open_.erase(session.peer());
    session.link().close();
}

Sessions::Silence Sessions::beat(const FailureDetector& detector) {
    const Bytes frame = encode(Heartbeat{});
    Silence silence;
    silence.asked = open_.size();
    for (const auto& [peer, session] : open_) {
        session->link().send(frame);
        if (!session->host()) continue;
        silence.is_any_late = silence.is_any_late || detector.is_late(session->link());
        const auto silent_for = detector.lost(session->link());
        if (silent_for) silence.lost.emplace_back(session, *silent_for);
    }
    return silence;
}

void Sessions::to_peer(PeerId peer, FrameType type, std::string_view payload) {
    const auto session = open_.find(peer);
    if (session != open_.end()) session->second->link().send_soon(type, payload);
}

void Sessions::share_with_peer(PeerId peer, FrameType type, std::string_view payload,
                               const SharedBytes& rest) {
    const auto session = open_.find(peer);
    if (session != open_.end()) session->second->link().send_soon(type, payload, rest);
}

asio::awaitable<void> Sessions::join() {
    for (AgentSession& session : sessions_) session.link().close();
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
