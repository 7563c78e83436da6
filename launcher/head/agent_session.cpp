#include "launcher/head/agent_session.h"

#include "base/loop/net.h"
#include "rendezvous/links/refuse.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/relayed.h"
#include "rendezvous/wire/start_messages.h"

namespace dtrun::head {

AgentSession::AgentSession(Connection connection, PeerId peer, AgentEvents& events)
    : peer_address_(dtrun::remote_address(connection.socket)),
      local_address_(dtrun::local_address(connection.socket)),
      link_(std::move(connection)),
      peer_(peer),
      events_(events) {}

asio::awaitable<void> AgentSession::run(Backpressure* towards) {
    const std::function<Result<void>(const FrameView&)> handle = [this](const FrameView& frame) {
        return this->handle(frame);
    };
    const auto served = co_await link_.serve(handle, towards);
    const Error why = served.error();
    if (why.code == Errc::cancelled) co_return;
    // Nobody knows which host this is, but the agent itself, which can be told.
    const bool is_wrong = why.code == Errc::invalid_input || why.code == Errc::denied;
    if (!host_ && is_wrong) co_await refuse(link_, why.message);
    link_.close();
    events_.agent_closed(*this, why);
}

template <class Message, class Handler>
Result<void> AgentSession::with(std::string_view payload, Handler handler) {
    auto message = decode<Message>(payload);
    if (!message) return std::unexpected(message.error());
    if constexpr (std::is_void_v<decltype(handler(*message))>) {
        handler(*message);
        return {};
    } else {
        return handler(*message);
    }
}

Result<void> AgentSession::handle(const FrameView& frame) {
    if (frame.type == FrameType::join && !host_)
        return with<Join>(frame.payload, [this](Join& join) {
            return events_.agent_joined(*this, std::move(join), false);
        });
    if (!host_)
        return fail(Errc::invalid_input, "frame of type {} before join",
                    static_cast<int>(frame.type));
    if (frame.type == FrameType::heartbeat) {
        const auto heartbeat = decode<Heartbeat>(frame.payload);
        if (heartbeat) link_.set_peer_busy(heartbeat->busy);
    }
    if (is_exchanged(frame.type)) return events_.agent_exchanged(*this, frame);
    if (frame.type == FrameType::relayed) return handle_relayed(frame.payload);
    if (frame.type == FrameType::relay_lost)
        return with<RelayLost>(frame.payload, [this](RelayLost& lost) {
            if (events_.is_behind(*this, lost.host)) events_.agent_lost(lost.host, lost.why);
        });
    return handle_from(*host_, frame);
}

Result<void> AgentSession::handle_relayed(std::string_view payload) {
    const auto relayed = decode_relayed(payload);
    if (!relayed) return std::unexpected(relayed.error());
    const FrameView& frame = relayed->frame;
    if (frame.type == FrameType::join)
        return with<Join>(frame.payload, [this](Join& join) {
            return events_.agent_joined(*this, std::move(join), true);
        });
    if (!events_.is_behind(*this, relayed->host)) return {};  // it was given up meanwhile
    return handle_from(relayed->host, frame);
}

Result<void> AgentSession::handle_from(HostId host, const FrameView& frame) {
    switch (frame.type) {
        case FrameType::output: {
            const auto output = decode_output(frame.payload);
            if (!output) return std::unexpected(output.error());
            events_.agent_output(host, *output);
            return {};
        }
        case FrameType::output_end:
            return with<OutputEnd>(frame.payload, [this, host](OutputEnd& end) {
                events_.agent_output_end(host, end);
            });
        case FrameType::started:
            return with<Started>(frame.payload, [this, host](Started& started) {
                events_.agent_started(host, started);
            });
        case FrameType::exited:
            return with<Exited>(frame.payload, [this, host](Exited& exited) {
                events_.agent_exited(host, exited);
            });
        case FrameType::input_credit:
            return with<InputCredit>(frame.payload, [this, host](InputCredit& credit) {
                events_.agent_input_credit(host, credit.bytes);
            });
        case FrameType::paused:
            return with<Paused>(frame.payload, [this, host](Paused& paused) {
                events_.agent_paused(host, paused);
            });
        case FrameType::signal:
            return with<SignalRanks>(frame.payload, [this, host](SignalRanks& signal) {
                events_.agent_signalled(host, signal.signal);
            });
        case FrameType::reached:
            return with<Reached>(frame.payload, [this, host](Reached& reached) {
                events_.agent_reached(host, reached);
            });
        case FrameType::waits:
            return with<Waits>(frame.payload, [this, host](Waits& waits) {
                events_.agent_waits(host, std::move(waits));
            });
        case FrameType::mpi:
            return with<MpiNews>(frame.payload,
                                 [this, host](MpiNews& news) { events_.agent_mpi(host, news); });
        case FrameType::severed:
            return with<SeveredNews>(frame.payload, [this, host](SeveredNews& news) {
                events_.agent_severed(host, news);
            });
        case FrameType::desk:
            return with<DeskNews>(frame.payload, [this, host](DeskNews& news) {
                events_.agent_process_says(host, news);
            });
        case FrameType::rolled:
            return with<Rolled>(frame.payload, [this, host](Rolled& rolled) {
                events_.agent_rolled(host, rolled.number);
            });
        case FrameType::stacks:
            return with<Stacks>(frame.payload, [this, host](Stacks& stacks) {
                events_.agent_stacks(host, std::move(stacks));
            });
        case FrameType::measures:
            return with<Measures>(frame.payload, [this, host](Measures& measures) {
                events_.agent_measures(host, std::move(measures));
            });
        case FrameType::debug:
            return with<DebugNews>(
                frame.payload, [this, host](DebugNews& news) { events_.agent_debugs(host, news); });
        case FrameType::tunnel:
            return with<Tunnel>(frame.payload, [this, host](Tunnel& tunnel) {
                events_.agent_tunnels(host, tunnel);
            });
        case FrameType::done:
            return with<Done>(frame.payload,
                              [this, host](Done& done) { events_.agent_done(host, done); });
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

}  // namespace dtrun::head
