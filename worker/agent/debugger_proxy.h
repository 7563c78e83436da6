#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/links/tunnel_end.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/modes.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace dtrun::agent {

/// The way from the head to the debugger that one rank of this host waits for: debugpy listens at a port of
/// loopback, and gdbserver has two pipes, `in` and `out` of a directory, since it would listen to the whole
/// network. It ends when gdb has left.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join() before destruction.
class DebuggerProxy {
public:
    /// \param directory_prefix  of the directory that it makes for gdbserver
    /// \param send              to the head
    DebuggerProxy(asio::any_io_executor executor, std::string directory_prefix,
                  std::function<void(const Tunnel&)> send);
    ~DebuggerProxy();
    DebuggerProxy(const DebuggerProxy&) = delete;
    DebuggerProxy& operator=(const DebuggerProxy&) = delete;

    /// Makes the place where the debugger is to be reached. Another user may be at the port before it, and is not
    /// talked to.
    /// \param debugger  debugpy or gdb
    /// \return the place, "127.0.0.1:4711"; for gdb the directory. Errc: internal
    Result<std::string> open(Debugger debugger);
    /// A frame of the head; the first with its number makes a connection.
    void take(const Tunnel& tunnel);
    void hang_up() noexcept;  ///< the rank has ended

    void stop() noexcept;
    asio::awaitable<void> join() { co_await tasks_.join(); }

private:
    Result<std::string> reserve_port();
    Result<std::string> make_pipes();
    Result<void> renew_pipes();
    asio::awaitable<void> run(std::uint32_t number);
    asio::awaitable<bool> open(TunnelEnd& end);
    asio::awaitable<bool> connect(TunnelEnd& end);

    asio::any_io_executor executor_;
    std::string prefix_;
    std::string directory_;  ///< empty: none was made
    std::function<void(const Tunnel&)> send_;
    Fd reserved_;  ///< bound to the port, and never listens
    std::uint16_t port_ = 0;
    /// Of gdbserver's pipes: what it reads and what it writes; and the ends of these that keep both open while it
    /// is not there.
    Fd to_gdb_, from_gdb_, reader_, writer_;
    std::map<std::uint32_t, std::unique_ptr<TunnelEnd>> ends_;
    std::uint32_t last_number_ = 0;  ///< the head's numbers rise: what has another one has ended
    bool stopping_ = false;
    TaskGroup tasks_;
};

}  // namespace dtrun::agent
