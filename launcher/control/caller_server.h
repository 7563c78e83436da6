#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/links/backpressure.h"
#include "rendezvous/links/link.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace dtrun::control {

/// A process of this user that is connected. Never used again.
using CallerId = std::uint64_t;

/// What comes from callers.
class CallerEvents {
public:
    virtual ~CallerEvents() = default;
    /// A frame. A failure ends the connection.
    virtual Result<void> heard(CallerId caller, const FrameView& frame) = 0;
    /// Nothing comes from it any more, and nothing gets there.
    virtual void left(CallerId caller) = 0;
};

/// A Unix socket of this user's, and the connections of those who ask there.
///
/// Thread: the executor's. Lifetime: `events` outlives it; join() before destruction, unless the process ends.
class CallerServer {
public:
    /// \param what  name of the socket, for the log
    CallerServer(asio::any_io_executor executor, std::string what, CallerEvents& events);
    ~CallerServer() { remove(); }
    CallerServer(const CallerServer&) = delete;
    CallerServer& operator=(const CallerServer&) = delete;

    /// Listens at `folder`/`socket`. May be tried again, in another folder. Errc: denied (the folder is not ours
    /// alone), invalid_input (its name is too long), internal
    Result<void> listen(const std::string& folder, const std::string& socket);

    /// Nothing happens if the caller has gone.
    void send(CallerId caller, Bytes frame);
    /// Whether the caller reads as fast as it is sent to.
    bool has_room(CallerId caller) const;
    /// The caller is not heard while `destination` is full, to which its frames go; null: whatever is full.
    /// \param destination  outlives the caller
    void forward(CallerId caller, Backpressure* destination);
    /// The caller reads the end behind what was sent.
    void shut_down_sending(CallerId caller);

    /// Removes the socket, and its folder if it is empty then; nobody can connect any more.
    void stop() noexcept;
    /// Closes all connections, and waits for their end.
    asio::awaitable<void> join();

private:
    struct Caller final : Backpressure {
        explicit Caller(Unix::socket socket) : link(std::move(socket)) {}
        bool is_full() const override { return destination != nullptr && destination->is_full(); }
        asio::awaitable<void> room() override;

        Link link;
        Backpressure* destination = nullptr;
    };

    Result<void> listen_at(const std::string& path);
    void remove() noexcept;
    asio::awaitable<void> accept();
    asio::awaitable<void> serve(CallerId id);
    Caller* find(CallerId id) const;

    asio::any_io_executor executor_;
    const std::string what_;
    CallerEvents& events_;
    std::string path_;  ///< empty: nobody can connect
    Unix::acceptor acceptor_;
    Fd folder_;  ///< locked, so that who cleans /tmp leaves it alone
    std::map<CallerId, std::unique_ptr<Caller>> callers_;
    CallerId last_caller_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun::control
