#include "launcher/agent_session.h"

#include "base/net.h"

namespace dtrun {

AgentSession::AgentSession(tcp::socket socket, AgentEvents& events)
    : link_(std::move(socket)), events_(events) {
    boost::system::error_code ignored;
    peer_address_ = numeric(link_.socket().remote_endpoint(ignored).address());
    local_address_ = numeric(link_.socket().local_endpoint(ignored).address());
}

asio::awaitable<void> AgentSession::run() {
    for (;;) {
        const auto received = co_await link_.receive();
        if (!received && received.error().code == Errc::cancelled) co_return;
        if (!received) {
            link_.close();
            co_return events_.agent_closed(*this, received.error());
        }
        for (;;) {
            auto frame = link_.next();
            if (frame && !*frame) break;
            const auto handled = frame ? handle(**frame) : std::unexpected(frame.error());
            if (!link_.is_open()) co_return;
            if (!handled) {
                link_.close();
                co_return events_.agent_closed(*this, handled.error());
            }
        }
    }
}

template <class Message, class Handler>
Result<void> AgentSession::with(std::string_view payload, Handler handler) {
    auto message = decode<Message>(payload);
    if (!message) return std::unexpected(message.error());
    handler(*message);
    return {};
}

Result<void> AgentSession::handle(const FrameView& frame) {
    if (frame.type == FrameType::join && !host_)
        return with<Join>(frame.payload,
                          [this](Join& join) { events_.agent_joined(*this, std::move(join)); });
    if (!host_)
        return fail(Errc::invalid_input, "frame of type {} before join",
                    static_cast<int>(frame.type));
    switch (frame.type) {
        case FrameType::output: {
            const auto output = decode_output(frame.payload);
            if (!output) return std::unexpected(output.error());
            events_.agent_output(*host_, *output);
            return {};
        }
        case FrameType::output_end:
            return with<OutputEnd>(
                frame.payload, [this](OutputEnd& end) { events_.agent_output_end(*host_, end); });
        case FrameType::started:
            return with<Started>(frame.payload, [this](Started& started) {
                events_.agent_started(*host_, started);
            });
        case FrameType::exited:
            return with<Exited>(frame.payload,
                                [this](Exited& exited) { events_.agent_exited(*host_, exited); });
        case FrameType::input_credit:
            return with<InputCredit>(frame.payload, [this](InputCredit& credit) {
                events_.agent_input_credit(*host_, credit.bytes);
            });
        case FrameType::done:
            return with<Done>(frame.payload,
                              [this](Done& done) { events_.agent_done(*host_, done); });
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

}  // namespace dtrun
