#include "launcher/control/control_server.h"

#include "rendezvous/wire/message.h"

#include <utility>

namespace dtrun::control {

Result<std::unique_ptr<ControlServer>> ControlServer::open(asio::any_io_executor executor,
                                                           const std::string& folder,
                                                           const std::string& socket,
                                                           ControlEvents& events) {
    std::unique_ptr<ControlServer> server(new ControlServer(std::move(executor), events));
    if (auto listening = server->callers_.listen(folder, socket); !listening)
        return std::unexpected(std::move(listening.error()));
    return server;
}

ControlServer::ControlServer(asio::any_io_executor executor, ControlEvents& events)
    : events_(events), callers_(std::move(executor), "the control socket", *this) {}

Result<void> ControlServer::heard(CallerId caller, const FrameView& frame) {
    if (!have_asked_.contains(caller)) {
        const auto ask = decode<ControlRequest>(frame.payload);
        if (frame.type != FrameType::control_request || !ask)
            return fail(Errc::invalid_input, "a command's first frame is a request");
        have_asked_.insert(caller);
        events_.asked(caller, *ask);
        return {};
    }
    if (frame.type == FrameType::input) {
        const auto input = decode<Input>(frame.payload);
        if (!input) return std::unexpected(input.error());
        events_.typed(caller, input->bytes);
        return {};
    }
    if (frame.type == FrameType::resize) {
        const auto resize = decode<Resize>(frame.payload);
        if (!resize) return std::unexpected(resize.error());
        events_.resized(caller, resize->size);
        return {};
    }
    return fail(Errc::invalid_input, "unexpected frame of type {}", static_cast<int>(frame.type));
}

void ControlServer::left(CallerId caller) {
    if (have_asked_.erase(caller) > 0) events_.left(caller);
}

void ControlServer::answer(CallerId caller, const Answer& answer) {
    callers_.send(caller, encode(answer));
}

}  // namespace dtrun::control
