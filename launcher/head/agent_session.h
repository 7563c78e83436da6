#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/router.h"

#include <optional>
#include <string>
#include <string_view>

namespace dtrun::head {

class AgentSession;
class Hosts;

/// Who receives what agents say: the parts of the head subscribe to it.
struct AgentRouter {
    /// What an agent says of its connection: who has joined over it or is lost behind it, and what goes to the
    /// head's Exchange.
    Router<AgentSession&> connections;
    Router<HostId> hosts;  ///< what a host says of itself
};

/// One connected agent, from authentication to close; it may speak for hosts behind it as well.
///
/// Thread: io_context only. Lifetime: what it was given outlives it; run() must have ended before destruction.
class AgentSession {
public:
    AgentSession(Connection connection, PeerId peer, const AgentRouter& router, const Hosts& hosts);

    /// \param towards  as Link::serve()'s
    /// \return why the connection has ended: as Link::serve()
    asio::awaitable<Error> run(Backpressure* towards);
    /// A frame of a host behind this one. Errc: invalid_input
    Result<void> relayed(std::string_view payload);
    asio::awaitable<void> run_writer() { return link_.run_writer(); }
    Link& link() { return link_; }
    const Link& link() const { return link_; }

    /// One of run() and run_writer() has ended. \return how many have not
    int end_task() { return --tasks_; }

    PeerId peer() const { return peer_; }
    /// Set once the agent has joined.
    std::optional<HostId> host() const { return host_; }
    void set_host(HostId host) { host_ = host; }
    const std::string& peer_address() const { return peer_address_; }    ///< numeric
    const std::string& local_address() const { return local_address_; }  ///< numeric

private:
    Result<void> handle(const FrameView& frame);

    std::string peer_address_;
    std::string local_address_;
    Link link_;
    PeerId peer_;
    int tasks_ = 2;
    const AgentRouter& router_;
    const Hosts& hosts_;
    std::optional<HostId> host_;
};

}  // namespace dtrun::head
