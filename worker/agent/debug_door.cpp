#include "worker/agent/debug_door.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace dtrun::agent {
namespace {

/// A debugger takes a moment until it listens, of which there is no event.
constexpr std::chrono::milliseconds kTryAgain{50};
constexpr std::chrono::seconds kTryLimit{30};

}  // namespace

DebugDoor::DebugDoor(asio::any_io_executor executor, std::function<void(const Tunnel&)> send)
    : executor_(executor), send_(std::move(send)), tasks_(std::move(executor)) {}

/// Both sides set SO_REUSEADDR, so that they may have the port together as long as only one listens.
Result<std::uint16_t> DebugDoor::reserve() {
    if (port_ != 0) return port_;
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const int yes = 1;
    const bool done =
        socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
    if (!done) return fail(Errc::internal, "no port for a debugger: {}", std::strerror(errno));
    reserved_ = std::move(socket);
    port_ = ntohs(address.sin_port);
    return port_;
}

void DebugDoor::take(const Tunnel& tunnel) {
    if (stopping_ || port_ == 0) return;
    auto& end = ends_[tunnel.connection];
    const bool is_new = !end;
    if (is_new) {
        if (tunnel.ended) return void(ends_.erase(tunnel.connection));
        end = std::make_unique<TunnelEnd>(tcp::socket(executor_), tunnel.connection, send_);
    }
    end->take(tunnel);
    if (is_new) tasks_.spawn(run(tunnel.connection));
}

asio::awaitable<void> DebugDoor::run(std::uint32_t number) {
    TunnelEnd& end = *ends_.at(number);
    const bool connected = co_await connect(end.socket());
    if (connected) co_await end.run();
    if (!connected) send_(Tunnel{number, {}, 0, true});
    ends_.erase(number);
}

asio::awaitable<bool> DebugDoor::connect(tcp::socket& socket) {
    const tcp::endpoint there(asio::ip::address_v4::loopback(), port_);
    const Deadline limit = after(kTryLimit);
    Timer pause(executor_);
    while (!stopping_ && Clock::now() < limit) {
        socket = tcp::socket(executor_);
        const auto [error] = co_await socket.async_connect(there, use_tuple);
        if (!error) {
            close_on_exec(socket.native_handle());
            co_return true;
        }
        pause.expires_after(kTryAgain);
        co_await pause.async_wait(use_tuple);
    }
    co_return false;
}

void DebugDoor::stop() noexcept {
    stopping_ = true;
    for (const auto& [number, end] : ends_) end->stop();
}

}  // namespace dtrun::agent
