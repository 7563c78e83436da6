#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::head {

class AgentSession;

/// What agents say, by whoever runs the job.
class AgentEvents {
public:
    virtual ~AgentEvents() = default;
    /// \param relayed  the joined agent is connected to this session's agent, which relays for it
    /// Errc: denied, for the agent to be told
    virtual Result<void> agent_joined(AgentSession& agent, Join join, bool relayed) = 0;
    virtual void agent_started(HostId host, const Started& started) = 0;
    virtual void agent_exited(HostId host, const Exited& exited) = 0;
    virtual void agent_output(HostId host, const OutputView& output) = 0;
    virtual void agent_output_end(HostId host, const OutputEnd& end) = 0;
    virtual void agent_input_credit(HostId host, std::uint64_t bytes) = 0;
    virtual void agent_paused(HostId host, const Paused& paused) = 0;
    /// The scheduler that has started the agent sends it a signal to end the job.
    virtual void agent_signalled(HostId host, int signal) = 0;
    virtual void agent_reached(HostId host, const Reached& reached) = 0;
    virtual void agent_waits(HostId host, Waits waits) = 0;
    virtual void agent_mpi(HostId host, const MpiNews& news) = 0;
    virtual void agent_severed(HostId host, const SeveredNews& news) = 0;
    virtual void agent_process_says(HostId host, const DeskNews& news) = 0;
    virtual void agent_rolled(HostId host, std::uint64_t number) = 0;
    virtual void agent_stacks(HostId host, Stacks stacks) = 0;
    virtual void agent_measures(HostId host, Measures measures) = 0;
    virtual void agent_debugs(HostId host, const DebugNews& news) = 0;
    virtual void agent_tunnels(HostId host, const Tunnel& tunnel) = 0;
    virtual void agent_done(HostId host, const Done& done) = 0;
    /// A frame that is_exchanged(). Errc: invalid_input
    virtual Result<void> agent_exchanged(AgentSession& agent, const FrameView& frame) = 0;
    /// Whether a host has joined through this session.
    virtual bool is_behind(const AgentSession& agent, HostId host) const = 0;
    virtual void agent_lost(HostId host, const std::string& why) = 0;
    /// The connection has ended, as it should after agent_done(). Not called after close().
    virtual void agent_closed(AgentSession& agent, const Error& why) = 0;
};

/// One connected agent, from authentication to close; it may speak for hosts behind it as well.
///
/// Thread: io_context only. Lifetime: `events` outlives it; run() must have ended before destruction.
class AgentSession {
public:
    AgentSession(Connection connection, PeerId peer, AgentEvents& events);

    /// \param towards  as Link::serve()'s
    asio::awaitable<void> run(Backpressure* towards);
    asio::awaitable<void> run_writer() { return link_.run_writer(); }
    Link& link() { return link_; }
    const Link& link() const { return link_; }

    PeerId peer() const { return peer_; }
    /// Set once the agent has joined.
    std::optional<HostId> host() const { return host_; }
    void set_host(HostId host) { host_ = host; }
    const std::string& peer_address() const { return peer_address_; }    ///< numeric
    const std::string& local_address() const { return local_address_; }  ///< numeric

private:
    Result<void> handle(const FrameView& frame);
    Result<void> handle_relayed(std::string_view payload);
    Result<void> handle_from(HostId host, const FrameView& frame);
    template <class Message, class Handler>
    Result<void> with(std::string_view payload, Handler handler);

    std::string peer_address_;
    std::string local_address_;
    Link link_;
    PeerId peer_;
    AgentEvents& events_;
    std::optional<HostId> host_;
};

}  // namespace dtrun::head
