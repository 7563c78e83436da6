#include "launcher/head/agent_session.h"

#include "base/loop/net.h"
#include "launcher/head/hosts.h"
#include "rendezvous/links/refuse.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/relayed.h"

namespace dtrun::head {

AgentSession::AgentSession(Connection connection, PeerId peer, const AgentRouter& router,
                           const Hosts& hosts)
    : peer_address_(dtrun::remote_address(connection.socket)),
      local_address_(dtrun::local_address(connection.socket)),
      link_(std::move(connection)),
      peer_(peer),
      router_(router),
      hosts_(hosts) {}

asio::awaitable<Error> AgentSession::run(Backpressure* towards) {
    const std::function<Result<void>(const FrameView&)> handle = [this](const FrameView& frame) {
        return this->handle(frame);
    };
    const auto served = co_await link_.serve(handle, towards);
    const Error& why = served.error();
    // Nobody knows which host this is, but the agent itself, which can be told.
    const bool is_wrong = why.code == Errc::invalid_input || why.code == Errc::denied;
    if (!host_ && is_wrong) co_await refuse(link_, why.message);
    link_.close();
    co_return why;
}

Result<void> AgentSession::handle(const FrameView& frame) {
    const bool is_join = frame.type == FrameType::join;
    if (!host_ && !is_join)
        return fail(Errc::invalid_input, "frame of type {} before join",
                    static_cast<int>(frame.type));
    if (frame.type == FrameType::heartbeat) {
        const auto heartbeat = decode<Heartbeat>(frame.payload);
        if (heartbeat) link_.set_peer_busy(heartbeat->busy);
    }
    const bool is_of_connection = router_.connections.has(frame.type) && !(host_ && is_join);
    if (is_of_connection) return router_.connections.route(*this, frame);
    return router_.hosts.route(*host_, frame);
}

Result<void> AgentSession::relayed(std::string_view payload) {
    const auto inner = decode_relayed(payload);
    if (!inner) return std::unexpected(inner.error());
    if (inner->frame.type == FrameType::join) return router_.connections.route(*this, inner->frame);
    if (!hosts_.is_behind(*this, inner->host)) return {};  // it was given up meanwhile
    return router_.hosts.route(inner->host, inner->frame);
}

}  // namespace dtrun::head
