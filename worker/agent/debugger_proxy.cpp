#include "worker/agent/debugger_proxy.h"

#include "base/log.h"
#include "base/loop/peer_user.h"
#include "worker/ranks/agent_directories.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace dtrun::agent {
namespace {

/// A debugger takes a moment until it listens, of which there is no event.
constexpr std::chrono::milliseconds kTryAgain{50};
constexpr std::chrono::seconds kTryLimit{30};

/// gdbserver gives a program its own standard streams, and has dtrun give it back those of the rank.
constexpr const char* kProgramScript = "exec \"$@\" <&8 >&9 2>&7 7>&- 8<&- 9>&-\n";

}  // namespace

DebuggerProxy::DebuggerProxy(asio::any_io_executor executor, std::string directory_prefix,
                             std::function<void(const Tunnel&)> send)
    : executor_(executor),
      prefix_(std::move(directory_prefix)),
      send_(std::move(send)),
      tasks_(std::move(executor)) {}

DebuggerProxy::~DebuggerProxy() {
    if (!directory_.empty()) ranks::remove_directory(directory_);
}

Result<std::string> DebuggerProxy::open(Debugger debugger) {
    return debugger == Debugger::gdb ? make_pipes() : reserve_port();
}

/// Both sides set SO_REUSEADDR, so that they may have the port together as long as only one listens.
Result<std::string> DebuggerProxy::reserve_port() {
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

Result<std::string> DebuggerProxy::make_pipes() {
    auto made = ranks::make_directory(prefix_);
    if (!made) return std::unexpected(made.error());
    directory_ = std::move(*made);
    const auto script = create_file(directory_ + "/program.sh", kProgramScript);
    if (!script) return std::unexpected(script.error());
    if (const auto done = renew_pipes(); !done) return std::unexpected(done.error());
    return directory_;
}

/// New ones, so that a gdbserver that has the old ones sees their end.
Result<void> DebuggerProxy::renew_pipes() {
    const std::string in = directory_ + "/in", out = directory_ + "/out";
    for (const std::string* const name : {&in, &out}) {
        ::unlink(name->c_str());
        if (::mkfifo(name->c_str(), 0600) != 0)
            return fail(Errc::internal, "{}: {}", *name, std::strerror(errno));
    }
    const auto open = [](const std::string& name, int mode) {
        return Fd(::open(name.c_str(), mode | O_NONBLOCK | O_CLOEXEC));
    };
    reader_ = open(in, O_RDONLY);
    to_gdb_ = open(in, O_WRONLY);
    from_gdb_ = open(out, O_RDONLY);
    writer_ = open(out, O_WRONLY);
    if (!reader_ || !to_gdb_ || !from_gdb_ || !writer_)
        return fail(Errc::internal, "{}: {}", directory_, std::strerror(errno));
    return {};
}

void DebuggerProxy::take(const Tunnel& tunnel) {
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

asio::awaitable<void> DebuggerProxy::run(std::uint32_t number) {
    TunnelEnd& end = *ends_.at(number);
    const bool reached = co_await open(end);
    if (reached) co_await end.run();
    if (!reached) send_(Tunnel{number, {}, 0, true});
    ends_.erase(number);
    if (!reached || directory_.empty() || stopping_) co_return;
    if (const auto done = renew_pipes(); !done) log::warn("{}", done.error().message);
}

asio::awaitable<bool> DebuggerProxy::open(TunnelEnd& end) {
    if (directory_.empty()) co_return co_await connect(end);
    if (!to_gdb_) co_return false;  // gdbserver takes one gdb
    end.open(std::move(from_gdb_), std::move(to_gdb_));
    co_return true;
}

asio::awaitable<bool> DebuggerProxy::connect(TunnelEnd& end) {
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
            if (user == PeerUser::ours) {
                end.open(std::move(socket));
                co_return true;
            }
            if (user != PeerUser::gone) {
                log::warn("port {}, where a debugger was to listen, has {}", port_, describe(user));
                break;
            }
            // It is not accepted yet, and nobody's until then.
        }
        pause.expires_after(kTryAgain);
        co_await pause.async_wait(use_tuple);
    }
    co_return false;
}

void DebuggerProxy::hang_up() noexcept {
    writer_.reset();
    for (const auto& [number, end] : ends_) end->stop();
}

void DebuggerProxy::stop() noexcept {
    stopping_ = true;
    hang_up();
}

}  // namespace dtrun::agent
