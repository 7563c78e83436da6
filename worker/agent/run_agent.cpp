#include "worker/agent/run_agent.h"

#include "base/log.h"
#include "base/loop/run_to_exit.h"
#include "base/own_program.h"
#include "base/strings.h"
#include "rendezvous/links/client.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/agent.h"
#include "worker/agent/guard.h"
#include "worker/agent/onward_ssh.h"
#include "worker/agent/store_program.h"
#include "worker/ranks/health_check.h"
#include "worker/ranks/stack_taker.h"
#include "worker/ranks/standby_runner.h"
#include "worker/ranks/supervisor.h"
#include "worker/ranks/usage.h"
#include "worker/stored/bundled_package.h"

#include <fcntl.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

namespace dtrun::agent {
namespace {

/// Where agents are copied to as well, by the same variables; empty: neither is set.
std::string cache_folder() {
    const char* const own = std::getenv("XDG_CACHE_HOME");
    if (own != nullptr && *own != '\0') return fmt::format("{}/dtrun", own);
    const char* const home = std::getenv("HOME");
    return home == nullptr || *home == '\0' ? "" : fmt::format("{}/.cache/dtrun", home);
}

/// Writes whole lines to standard output. Agents that a scheduler starts share it: each line of theirs
/// begins with "@<node> ".
class Speaker {
public:
    explicit Speaker(std::string node) : node_(std::move(node)) {}
    void say(std::string_view line) const {
        const std::string whole = node_.empty() ? fmt::format("{}\n", line)  //
                                                : fmt::format("@{} {}\n", node_, line);
        if (!write_all(STDOUT_FILENO, whole)) log::debug("nobody reads our output");
    }

private:
    std::string node_;
};

/// What two processes have in common if they are one user's on one machine and in one container: the kernel's
/// boot, the user, and the namespaces of files, network and processes. Empty: not known.
std::string machine_text() {
    const auto boot = read_file("/proc/sys/kernel/random/boot_id");
    if (!boot) return {};
    std::string text = fmt::format("{} {}", trim(*boot), ::geteuid());
    for (const char* const name : {"mnt", "net", "pid"}) {
        std::error_code error;
        const auto space =
            std::filesystem::read_symlink(std::string("/proc/self/ns/") + name, error);
        if (error) return {};
        text += " " + space.native();
    }
    return text;
}

AgentParts real_parts(asio::io_context& io, const std::string& node, std::string lent_agent) {
    AgentParts parts;
    parts.lifeline = Fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
    parts.say = [speaker = Speaker(node)](std::string_view line) { speaker.say(line); };
    parts.host_env = environ;
    parts.node = node;
    parts.connect = connect_to_server;
    const auto supervisor = std::make_shared<ranks::Supervisor*>(nullptr);
    parts.make_runner = [&io, supervisor](std::function<void(const Exited&)> exited,
                                          const std::function<void(std::string)>& tell) {
        auto made = std::make_unique<ranks::Supervisor>(io.get_executor(), std::move(exited), tell);
        *supervisor = made.get();
        return std::make_unique<ranks::StandbyRunner>(io.get_executor(), std::move(made), tell);
    };
    parts.check_health = [supervisor](ranks::RankCommand command) {
        return ranks::check_health(**supervisor, std::move(command), kHealthCheckLimit);
    };
    parts.look_for_nested = [](const std::vector<ranks::RunningRank>& ranks) {
        return ranks::look_for_nested(ranks);
    };
    parts.take_stacks = [supervisor](std::vector<ranks::RunningRank> ranks,
                                     contracts::Environment env, StackRequest request) {
        return ranks::take_stacks(**supervisor, std::move(ranks), std::move(env), request);
    };
    const auto gpus = std::make_shared<std::unique_ptr<ranks::GpuWatch>>();
    parts.measure = [supervisor, gpus](const std::vector<ranks::RunningRank>& ranks) {
        if (!*gpus) *gpus = std::make_unique<ranks::GpuWatch>(**supervisor);
        UsageReport report = ranks::measure_ranks(ranks);
        report.gpus = (*gpus)->last();
        return report;
    };
    parts.ask_gpus = [gpus](std::vector<ranks::RunningRank> ranks, contracts::Environment env) {
        return (*gpus)->ask(std::move(ranks), std::move(env));
    };
    parts.start_login = start_ssh_with(supervisor, std::move(lent_agent));
    parts.find_package = find_own_package;
    parts.make_store_program = make_store_program;
    parts.machine = machine_text();
    parts.make_services = make_services;
    parts.load = runnable_threads_source();
    return parts;
}

asio::awaitable<void> watch_signals(asio::signal_set& signals, Agent& agent, pid_t guard) {
    for (;;) {
        const auto [error, signal] = co_await signals.async_wait(use_tuple);
        if (error) co_return;
        bool passed = false;
        for (std::size_t i = 0; i < kGuardSignals.size(); ++i) {
            if (signal != passed_on(i)) continue;
            agent.guard_got(kGuardSignals[i]);
            passed = true;
        }
        if (!passed) agent.got_signal(signal, ::getppid() == guard);
    }
}

}  // namespace

Result<std::string> find_own_package() {
    const auto own = own_program();
    if (!own) return fail(Errc::not_found, "{}", own.error().message);
    return find_package(
        *own, kPackage,
        cache_for_code(cache_folder(), fmt::format("/var/tmp/dtrun-{}", ::geteuid())));
}

int run_agent(std::string node, std::string lent_agent) {
    // They live on while the process ends: handlers that are still queued refer to them.
    auto& io = *new asio::io_context(1);
    auto& signals = *new asio::signal_set(io);
    for (std::size_t i = 0; i < kGuardSignals.size(); ++i) {
        signals.add(kGuardSignals[i]);
        signals.add(passed_on(i));
    }
    const pid_t guard = ::getppid();
    Agent* running = nullptr;
    AgentParts parts = real_parts(io, node, std::move(lent_agent));
    parts.reserve_ports = [](std::uint32_t count) { return ReservedPorts(count); };
    parts.connected = [&] {
        asio::co_spawn(io, watch_signals(signals, *running, guard), [](std::exception_ptr error) {
            if (error) std::rethrow_exception(error);
        });
    };
    auto& agent = *new Agent(io, std::move(parts));
    running = &agent;
    return run_to_exit(io, agent.run(), 1);
}

}  // namespace dtrun::agent
