#pragma once

#include "base/loop/asio.h"
#include "base/result.h"
#include "launcher/control/caller_server.h"
#include "rendezvous/wire/control_messages.h"

#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace dtrun::control {

/// What commands want, for whoever runs the job.
class ControlEvents {
public:
    virtual ~ControlEvents() = default;
    /// Called once for each caller; what is wanted is answered by ControlServer::answer().
    virtual void asked(CallerId caller, const ControlRequest& ask) = 0;
    /// Input for the rank that it is attached to; empty: the end.
    virtual void typed(CallerId caller, std::string_view bytes) = 0;
    virtual void resized(CallerId caller, const TerminalSize& size) = 0;
    virtual void left(CallerId caller) = 0;
};

/// A job's control socket: commands of the same user connect to it and ask.
///
/// Thread: the executor's. Lifetime: `events` outlives it; join() before destruction, unless the process
/// ends.
class ControlServer final : CallerEvents {
public:
    /// Listens at `folder`/`socket`, a socket_name(). Errc: denied (the folder is not ours alone), invalid_input (its
    /// name is too long), internal
    static Result<std::unique_ptr<ControlServer>> open(asio::any_io_executor executor,
                                                       const std::string& folder,
                                                       const std::string& socket,
                                                       ControlEvents& events);

    /// Sends a piece of an answer. Nothing happens if the caller has gone.
    void answer(CallerId caller, const Answer& answer);
    /// Whether the caller reads as fast as it is answered.
    bool has_room(CallerId caller) const { return callers_.has_room(caller); }

    /// Removes the socket, and its folder if it is empty then; nobody can connect any more.
    void stop() noexcept { callers_.stop(); }
    asio::awaitable<void> join() { return callers_.join(); }

private:
    ControlServer(asio::any_io_executor executor, ControlEvents& events);
    Result<void> heard(CallerId caller, const FrameView& frame) override;
    void left(CallerId caller) override;

    ControlEvents& events_;
    std::set<CallerId> have_asked_;
    CallerServer callers_;
};

}  // namespace dtrun::control
