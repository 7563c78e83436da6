#include "worker/agent/debug_door.h"

#include "base/log.h"
#include "base/loop/peer_user.h"
#include "worker/ranks/left_behind.h"
#include "worker/ranks/rank_terminal.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>
#include <array>
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

DebugDoor::DebugDoor(asio::any_io_executor executor, std::string directory_prefix,
                     std::function<void(const Tunnel&)> send)
    : executor_(executor),
      prefix_(std::move(directory_prefix)),
      send_(std::move(send)),
      tasks_(std::move(executor)) {}

DebugDoor::~DebugDoor() {
    if (!directory_.empty()) ranks::remove_directory(directory_);
}

Result<std::string> DebugDoor::open(Debugger debugger) {
    return debugger == Debugger::gdb ? open_terminal() : reserve_port();
}

/// Both sides set SO_REUSEADDR, so that they may have the port together as long as only one listens.
Result<std::string> DebugDoor::reserve_port() {
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
    return fmt::format("127.0.0.1:{}", port_);
}

Result<std::string> DebugDoor::open_terminal() {
    auto made = ranks::make_directory(prefix_);
    if (!made) return std::unexpected(made.error());
    directory_ = std::move(*made);
    if (const auto done = renew_terminal(); !done) return std::unexpected(done.error());
    return directory_ + "/gdb";
}

/// gdbserver sees that gdb has left when its terminal hangs up, and then opens what has the name now.
Result<void> DebugDoor::renew_terminal() {
    auto made = ranks::open_terminal({});
    if (!made) return std::unexpected(made.error());
    // Bytes go through as they are, before gdbserver has said so, too.
    termios raw{};
    std::array<char, 64> name{};
    bool done = ::tcgetattr(made->slave.get(), &raw) == 0;
    ::cfmakeraw(&raw);
    done = done && ::tcsetattr(made->slave.get(), TCSANOW, &raw) == 0 &&
           ::ptsname_r(made->master.get(), name.data(), name.size()) == 0;
    const std::string next = directory_ + "/next", link = directory_ + "/gdb";
    done = done && ::symlink(name.data(), next.c_str()) == 0 &&
           ::rename(next.c_str(), link.c_str()) == 0;
    if (!done) return fail(Errc::internal, "no terminal for a debugger: {}", std::strerror(errno));
    terminal_ = std::move(*made);
    return {};
}

void DebugDoor::take(const Tunnel& tunnel) {
    if (stopping_) return;
    if (const auto found = ends_.find(tunnel.connection); found != ends_.end())
        return found->second->take(tunnel);
    if (tunnel.connection <= last_number_) return;
    last_number_ = tunnel.connection;
    auto& end = ends_[tunnel.connection];
    end = std::make_unique<TunnelEnd>(executor_, tunnel.connection, send_);
    end->take(tunnel);
    tasks_.spawn(run(tunnel.connection));
}

asio::awaitable<void> DebugDoor::run(std::uint32_t number) {
    TunnelEnd& end = *ends_.at(number);
    const bool by_terminal = static_cast<bool>(terminal_.master);
    Fd stream;
    if (!by_terminal)
        stream = co_await connect(end);
    else if (ends_.size() == 1)  // gdbserver takes one gdb at a time
        stream.reset(::fcntl(terminal_.master.get(), F_DUPFD_CLOEXEC, 3));
    const bool reached = stream && !end.is_over();
    if (reached) {
        end.open(std::move(stream));
        co_await end.run();
    } else {
        send_(Tunnel{number, {}, 0, true});
    }
    ends_.erase(number);
    if (!reached || !by_terminal || stopping_) co_return;
    if (const auto done = renew_terminal(); !done) log::warn("{}", done.error().message);
}

asio::awaitable<Fd> DebugDoor::connect(const TunnelEnd& end) {
    const tcp::endpoint there(asio::ip::address_v4::loopback(), port_);
    const Deadline limit = after(kTryLimit);
    Timer pause(executor_);
    tcp::socket socket(executor_);
    while (!stopping_ && !end.is_over() && Clock::now() < limit) {
        boost::system::error_code ignored;
        if (!socket.is_open()) {
            const auto [error] = co_await socket.async_connect(there, use_tuple);
            if (error) socket.close(ignored);
        }
        if (socket.is_open()) {
            close_on_exec(socket.native_handle());
            const PeerUser user = peer_user(socket);
            if (user == PeerUser::ours || user == PeerUser::unknown) {
                socket.native_non_blocking(true, ignored);
                co_return Fd(socket.release());
            }
            if (user == PeerUser::other) {
                log::warn("another user listens at port {}, where a debugger was to", port_);
                break;
            }
            // It is not accepted yet, and nobody's until then.
        }
        pause.expires_after(kTryAgain);
        co_await pause.async_wait(use_tuple);
    }
    co_return Fd();
}

void DebugDoor::hang_up() noexcept {
    for (const auto& [number, end] : ends_) end->stop();
}

void DebugDoor::stop() noexcept {
    stopping_ = true;
    hang_up();
}

}  // namespace dtrun::agent
