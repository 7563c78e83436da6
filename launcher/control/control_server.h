#pragma once

#include "base/fd.h"
#include "base/loop/accept.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/control_messages.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace dtrun::control {

/// A command that is connected. Never used again.
using CallerId = std::uint64_t;

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
class ControlServer {
public:
    /// Listens at `folder`/`socket`, a socket_name(). Errc: denied (the folder is not ours alone), invalid_input (its
    /// name is too long), internal
    static Result<std::unique_ptr<ControlServer>> open(asio::any_io_executor executor,
                                                       const std::string& folder,
                                                       const std::string& socket,
                                                       ControlEvents& events);
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

    /// Sends a piece of an answer. Nothing happens if the caller has gone.
    void answer(CallerId caller, const Answer& answer);
    /// Whether the caller reads as fast as it is answered.
    bool has_room(CallerId caller) const;

    /// Removes the socket, and its folder if it is empty then; nobody can connect any more.
    void stop() noexcept;
    asio::awaitable<void> join();

private:
    ControlServer(asio::any_io_executor executor, std::string path, ControlEvents& events);
    Result<void> listen();
    void remove() noexcept;
    asio::awaitable<void> accept();
    asio::awaitable<void> run(CallerId id);
    Result<void> handle(CallerId id, const FrameView& frame);

    struct Caller {
        explicit Caller(Unix::socket socket) : link(std::move(socket)) {}
        Link link;
        bool asked = false;
    };

    asio::any_io_executor executor_;
    std::string path_;
    ControlEvents& events_;
    Unix::acceptor acceptor_;
    Fd folder_;  ///< locked, so that who cleans /tmp leaves it alone
    std::map<CallerId, std::unique_ptr<Caller>> callers_;
    CallerId last_caller_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun::control
