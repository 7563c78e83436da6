#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/links/tunnel_end.h"
#include "rendezvous/wire/look_messages.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace dtrun::agent {

/// The way from the head to the debugger that one rank of this host waits for: connections to a port of
/// loopback.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join() before destruction.
class DebugDoor {
public:
    /// \param send  to the head
    DebugDoor(asio::any_io_executor executor, std::function<void(const Tunnel&)> send);

    /// A port that nobody else gets; who debugs listens there. Errc: internal
    Result<std::uint16_t> reserve();
    /// A frame of the head; the first with its number makes a connection.
    void take(const Tunnel& tunnel);

    void stop() noexcept;
    asio::awaitable<void> join() { co_await tasks_.join(); }

private:
    asio::awaitable<void> run(std::uint32_t number);
    asio::awaitable<bool> connect(tcp::socket& socket);

    asio::any_io_executor executor_;
    std::function<void(const Tunnel&)> send_;
    Fd reserved_;  ///< bound, and never listens
    std::uint16_t port_ = 0;
    std::map<std::uint32_t, std::unique_ptr<TunnelEnd>> ends_;
    bool stopping_ = false;
    TaskGroup tasks_;
};

}  // namespace dtrun::agent
