#pragma once

#include "base/asio.h"
#include "rendezvous/link.h"
#include "rendezvous/messages.h"

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun {

class AgentSession;

/// What agents say, by whoever runs the job.
class AgentEvents {
public:
    virtual ~AgentEvents() = default;
    virtual void agent_joined(AgentSession& agent, Join join) = 0;
    virtual void agent_started(std::uint32_t host, const Started& started) = 0;
    virtual void agent_exited(std::uint32_t host, const Exited& exited) = 0;
    virtual void agent_output(std::uint32_t host, const OutputView& output) = 0;
    virtual void agent_output_end(std::uint32_t host, const OutputEnd& end) = 0;
    virtual void agent_input_credit(std::uint32_t host, std::uint64_t bytes) = 0;
    virtual void agent_done(std::uint32_t host, const Done& done) = 0;
    /// The connection has ended, as it should after agent_done(). Not called after close().
    virtual void agent_closed(AgentSession& agent, const Error& why) = 0;
};

/// One connected agent, from authentication to close.
///
/// Thread: io_context only. Lifetime: `events` outlives it; run() must have ended before destruction.
class AgentSession {
public:
    AgentSession(tcp::socket socket, AgentEvents& events);

    asio::awaitable<void> run();
    asio::awaitable<void> run_writer() { return link_.run_writer(); }
    void send(Bytes frame) { link_.send(std::move(frame)); }
    void close() noexcept { link_.close(); }

    /// Set once the agent has joined.
    std::optional<std::uint32_t> host() const { return host_; }
    void set_host(std::uint32_t host) { host_ = host; }
    const std::string& peer_address() const { return peer_address_; }    ///< numeric
    const std::string& local_address() const { return local_address_; }  ///< numeric

private:
    Result<void> handle(const FrameView& frame);
    template <class Message, class Handler>
    Result<void> with(std::string_view payload, Handler handler);

    Link link_;
    AgentEvents& events_;
    std::string peer_address_;
    std::string local_address_;
    std::optional<std::uint32_t> host_;
};

}  // namespace dtrun
