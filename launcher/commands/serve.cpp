#include "launcher/commands/serve.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/plan/exit_code.h"
#include "rendezvous/daemon.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstring>

namespace dtrun::commands {
namespace {

constexpr int kFirstPassedFd = 3;  // sd_listen_fds(3)
constexpr std::uint64_t kDescriptors = 1u << 20;

/// Tells systemd, if it has asked to be told (sd_notify(3)).
void notify(plan::EnvironmentView environment, std::string_view state) {
    const auto path = plan::find_variable(environment, "NOTIFY_SOCKET");
    sockaddr_un address{};
    if (!path || path->size() < 2 || path->size() >= sizeof address.sun_path) return;
    address.sun_family = AF_UNIX;
    std::copy(path->begin(), path->end(), address.sun_path);
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
    const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path->size());
    if (::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), size) < 0)
        log::warn("NOTIFY_SOCKET: {}", strerror(errno));
}

/// Sockets that systemd has opened for us.
int passed_sockets(plan::EnvironmentView environment) {
    const auto number = [&](std::string_view name) {
        return to_int(plan::find_variable(environment, name).value_or(""), 0, 1'000'000'000)
            .value_or(0);
    };
    return number("LISTEN_PID") == ::getpid() ? static_cast<int>(number("LISTEN_FDS")) : 0;
}

Result<std::uint16_t> open_sockets(Daemon& daemon, const cli::ServeOptions& options,
                                   plan::EnvironmentView environment) {
    const int passed = passed_sockets(environment);
    if (passed > 0) {
        Result<std::uint16_t> port = std::uint16_t{0};
        for (int i = 0; i < passed && port; ++i) port = daemon.adopt(kFirstPassedFd + i);
        return port;
    }
    if (options.listen.empty()) {
        auto port = daemon.listen({"::"}, plan::kDaemonPort);
        if (!port && port.error().message.find("Address family") != std::string::npos)
            port = daemon.listen({"0.0.0.0"}, plan::kDaemonPort);  // no IPv6 here
        return port;
    }
    const auto address = plan::parse_address(options.listen, plan::kDaemonPort);
    if (!address) return fail(address.error(), "--listen");
    return daemon.listen({address->first}, address->second);
}

asio::awaitable<int> serve(Daemon& daemon, const cli::ServeOptions& options,
                           plan::EnvironmentView environment) {
    const auto executor = co_await asio::this_coro::executor;
    asio::signal_set signals(executor, SIGTERM, SIGINT, SIGHUP);
    if (const auto restored = daemon.restore(); !restored) {
        log::error("{}", restored.error().message);
        co_return plan::kExitInternal;
    }
    const auto port = open_sockets(daemon, options, environment);
    if (!port) {
        log::error("{}", port.error().message);
        co_return port.error().code == Errc::invalid_input ? plan::kExitUsage : plan::kExitInternal;
    }
    log::info("serving on port {}", *port);
    notify(environment, "READY=1");
    const auto [error, signal] = co_await signals.async_wait(use_tuple);
    log::info("ended by signal {}", signal);
    notify(environment, "STOPPING=1");
    co_await daemon.stop();
    co_return 0;
}

}  // namespace

int run_serve(const cli::ServeOptions& options, plan::EnvironmentView environment) {
    const auto secret = plan::read_secret(options.daemon, environment, true);
    if (!secret) {
        log::error("{}", secret.error().message);
        return plan::kExitUsage;
    }
    raise_descriptor_limit(kDescriptors);
    asio::io_context io(1);
    DaemonOptions daemon_options;
    daemon_options.secret = *secret;
    daemon_options.encrypt = options.daemon.encrypt;
    daemon_options.heartbeat_timeout = options.heartbeat_timeout;
    daemon_options.state_directory = options.state_directory;
    Daemon daemon(io.get_executor(), daemon_options);
    int status = plan::kExitInternal;
    asio::co_spawn(io, serve(daemon, options, environment),
                   [&](std::exception_ptr error, int code) {
                       if (error) std::rethrow_exception(error);
                       status = code;
                       io.stop();
                   });
    io.run();
    std::fflush(nullptr);
    ::_exit(status);
}

}  // namespace dtrun::commands
