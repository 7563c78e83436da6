#include "launcher/commands/serve.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/run_to_exit.h"
#include "base/loop/task_group.h"
#include "base/process/ending_signals.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/cli/command.h"
#include "launcher/cli/show_rows.h"
#include "launcher/commands/daemon_flags.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/plan/exit_code.h"
#include "launcher/watch/daemon_page.h"
#include "rendezvous/daemon/daemon.h"
#include "rendezvous/daemon/state_backup.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <tuple>

namespace dtrun::commands {
namespace {

constexpr std::string_view kServeIntroduction = R"(usage: dtrun serve [options]

Runs the rendezvous daemon: it brings together ranks that `dtrun join`, or
programs with dtrun's library, start on any machines; for many jobs at once.
Whoever knows its secret may use it; if ~/.config/dtrun/secret does not exist,
it is created.

With --state, everything that was acknowledged outlives the daemon: killed and
started again, it goes on with its jobs, and ranks notice nothing. systemd can
start it (Type=notify), also by socket activation.

A job that is only a store, without members of `dtrun join`, never ends: the
next run with its name finds its keys. Give each run a name of its own, drop the
job between two runs (dtrun store drop --job NAME), or see --keep-unused.

Examples:
  dtrun serve
  dtrun serve --listen 10.0.0.1:29400 --state /var/lib/dtrun

SIGTERM and Ctrl-C end it cleanly: without --state its jobs end, too.
)";

Result<void> set_listen(ParsedServe& parsed, std::string_view value) {
    const auto address = plan::parse_address(value, plan::kDaemonPort);
    if (!address) return std::unexpected(address.error());
    boost::system::error_code error;
    asio::ip::make_address(address->first, error);
    if (error)
        return fail(Errc::invalid_input, "'{}' is not a numeric address such as 10.0.0.1 or [::1]",
                    address->first);
    parsed.own.listen = value;
    return {};
}

constexpr std::chrono::hours kKeepMax{24 * 366};
constexpr std::uint64_t kStoreLimitMax = std::uint64_t{1} << 50;

std::uint64_t half_of_memory() {
    const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return kStoreLimitMax;
    return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) / 2;
}

cli::Rows<ParsedServe> own_rows() {
    using enum cli::FlagGroup;
    return {
        {{.names = "--listen",
          .metavar = "ADDRESS[:PORT]",
          .group = daemon,
          .help = "numeric address; port 0: any free one (default: every interface, port 29400)"},
         set_listen},
        {{.names = "--state",
          .metavar = "DIR",
          .group = daemon,
          .help = "keep jobs in this directory, which only you may be able to write to, and go on "
                  "with them after a restart (default: keep nothing)"},
         cli::set_text<&ServeOptions::state_directory>},
        {{.names = "--heartbeat-timeout",
          .metavar = "SECONDS",
          .group = daemon,
          .help = "a member that is silent for this long is lost; at least 1 (default: 3)"},
         cli::set_seconds<&ServeOptions::heartbeat_timeout, 1'000>},
        {{.names = "--keep-unused",
          .metavar = "SECONDS",
          .group = daemon,
          .help = "forget a job that is only a store when nobody has been connected to it for this "
                  "long, counting only time in which a daemon served its --state; 0: never "
                  "(default: 604800, a week)"},
         [](ParsedServe& parsed, std::string_view value) -> Result<void> {
             const auto time = cli::parse_seconds(value, std::chrono::seconds(0), kKeepMax);
             if (!time) return std::unexpected(time.error());
             parsed.own.keep_unused.reset();
             if (time->count() > 0) parsed.own.keep_unused = *time;
             return {};
         }},
        {{.names = "--store-limit",
          .metavar = "SIZE",
          .group = daemon,
          .help = "the most that the stores of all jobs may hold together, such as 500M or 8G; "
                  "each may hold 1 GiB (default: half of this machine's memory)"},
         [](ParsedServe& parsed, std::string_view value) -> Result<void> {
             const auto bytes = cli::parse_bytes(value, kStoreLimitMax);
             if (!bytes) return std::unexpected(bytes.error());
             parsed.own.store_bytes_max = *bytes;
             return {};
         }},
        {{.names = "--web",
          .metavar = "[=ADDRESS:PORT]",
          .group = daemon,
          .help = "show the jobs on a web page (default: none; --web alone: at a free port of the "
                  "loopback interface); `dtrun status --page-key` prints its key"},
         [](ParsedServe& parsed, std::string_view value) -> Result<void> {
             const auto at = cli::parse_listen_address(value);
             if (!at) return std::unexpected(at.error());
             parsed.own.page = *at;
             return {};
         }},
    };
}

cli::Rows<ParsedServe> copy_rows() {
    using enum cli::FlagGroup;
    return {
        {{.names = "--backup",
          .metavar = "FILE",
          .group = daemon,
          .help = "write the present state of --state to a file, even while a daemon uses it, and "
                  "exit"},
         cli::set_text<&ServeOptions::backup>},
        {{.names = "--restore",
          .metavar = "FROM",
          .group = daemon,
          .help = "put a backup, or the undamaged part of another state directory, into --state, "
                  "list what is damaged, and exit"},
         cli::set_text<&ServeOptions::restore>},
        {{.names = "--replace",
          .group = daemon,
          .help = "with --restore: move the existing state to state.db.replaced"},
         cli::set_true<&ServeOptions::replaces>},
    };
}

cli::Rows<ParsedServe> verbosity_rows() {
    using enum cli::FlagGroup;
    return {
        {{.names = "--quiet",
          .group = other,
          .help = "log warnings and errors only (default: what jobs do, too)"},
         cli::set_to<&ServeOptions::verbosity, log::Level::normal>},
        {{.names = "--debug", .group = other, .help = "log every event"},
         cli::set_to<&ServeOptions::verbosity, log::Level::debug>},
    };
}

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

/// Tells systemd that the loop turns, twice as often as it wants to hear so (sd_watchdog_enabled(3)).
asio::awaitable<void> feed_watchdog(plan::EnvironmentView environment) {
    const auto wanted = [&](std::string_view name) {
        return to_int(plan::find_variable(environment, name).value_or(""), 1, INT64_MAX);
    };
    const auto limit_us = wanted("WATCHDOG_USEC");
    if (!limit_us || wanted("WATCHDOG_PID").value_or(::getpid()) != ::getpid()) co_return;
    Timer timer(co_await asio::this_coro::executor);
    boost::system::error_code stopped;
    while (!stopped) {
        notify(environment, "WATCHDOG=1");
        timer.expires_after(std::chrono::microseconds(*limit_us / 2));
        std::tie(stopped) = co_await timer.async_wait(use_tuple);
    }
}

/// Sockets that systemd has opened for us.
int passed_sockets(plan::EnvironmentView environment) {
    const auto number = [&](std::string_view name) {
        return to_int(plan::find_variable(environment, name).value_or(""), 0, 1'000'000'000)
            .value_or(0);
    };
    return number("LISTEN_PID") == ::getpid() ? static_cast<int>(number("LISTEN_FDS")) : 0;
}

Result<std::uint16_t> open_sockets(Daemon& daemon, const ServeOptions& options,
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
    auto port = daemon.listen({address->first}, address->second);
    if (!port) return fail(port.error(), "--listen");
    return port;
}

/// What can be mended by calling `serve` in another way is usage; a damaged file, or one of a newer version, is not.
int exit_code_of(const Error& error) {
    const bool is_usage = error.code == Errc::invalid_input || error.code == Errc::denied;
    return is_usage ? plan::kExitUsage : plan::kExitInternal;
}

asio::awaitable<int> serve(Daemon& daemon, const ServeOptions& options,
                           plan::EnvironmentView environment, std::string page_key) {
    const auto executor = co_await asio::this_coro::executor;
    if (const auto restored = daemon.restore(); !restored) {
        log::error("{}", restored.error().message);
        co_return exit_code_of(restored.error());
    }
    const auto port = open_sockets(daemon, options, environment);
    if (!port) {
        const bool is_taken = port.error().message.find("already in use") != std::string::npos;
        log::error("{}{}", port.error().message,
                   is_taken ? "; a daemon may be there already (dtrun status), or write --listen "
                              "ADDRESS:PORT"
                            : "");
        co_return is_taken ? plan::kExitUsage : exit_code_of(port.error());
    }
    daemon.start();
    log::info("serving on port {}", *port);
    std::unique_ptr<watch::DaemonPage> page;
    if (options.page) {
        auto opened = watch::DaemonPage::open(executor, *options.page, page_key,
                                              [&daemon] { return daemon.status(""); });
        if (!opened) {
            log::error("{}", opened.error().message);
            co_return plan::kExitUsage;
        }
        page = std::move(*opened);
        // What is logged elsewhere than on a terminal may be read by others.
        const bool seen = ::isatty(STDERR_FILENO) == 1;
        log::info("its page: http://{}/#{}", page->place(),
                  seen ? page_key : "KEY, which `dtrun status --page-key` prints");
    }
    // Until here a signal ends the process at once: a disk that is read may not answer.
    asio::signal_set signals(executor, SIGTERM, SIGINT, SIGHUP);
    exit_at_unheard_signals();
    notify(environment, "READY=1");
    TaskGroup watchdog(executor);
    watchdog.spawn(feed_watchdog(environment));
    const auto [error, signal] = co_await signals.async_wait(use_tuple);
    ending_signal_heard();
    log::info("ended by signal {}", signal);
    notify(environment, "STOPPING=1");
    if (page) co_await page->join();
    const bool is_kept = co_await daemon.stop();
    watchdog.stop();
    co_await watchdog.join();
    co_return is_kept ? 0 : plan::kExitInternal;
}

void tell_damaged(const std::vector<DamagedJob>& jobs) {
    for (const DamagedJob& job : jobs)
        log::error("job {} is damaged: {}", job.name.empty() ? "?" : escaped(job.name), job.why);
}

/// \return the process's exit status
int back_up(const ServeOptions& options) {
    const auto backup = back_up_state(options.state_directory, options.backup);
    if (!backup) {
        log::error("--backup: {}", backup.error().message);
        return exit_code_of(backup.error());
    }
    tell_damaged(backup->damage.jobs);
    const std::string& structure = backup->damage.structure;
    if (!structure.empty()) log::error("--backup: the file is damaged: {}", structure);
    if (!backup->has_sums)
        log::warn(
            "--backup: the state is of another version of dtrun, so its rows are not checked");
    log::info("--backup: {} is written", backup->file);
    return backup->damage.is_any() ? plan::kExitInternal : 0;
}

/// \return the process's exit status
int restore(const ServeOptions& options) {
    const auto restored = restore_state(options.restore, options.state_directory, options.replaces);
    if (!restored) {
        log::error("--restore: {}", restored.error().message);
        return exit_code_of(restored.error());
    }
    tell_damaged(restored->damaged);
    if (!restored->replaced.empty())
        log::info("--restore: the state that was there is {}", restored->replaced);
    log::info("--restore: {} has {}", options.state_directory,
              plural(restored->jobs.size(), "job"));
    return 0;
}

/// Serves until a signal ends it. \return the process's exit status
int serve_until_signal(const ServeOptions& options, plan::EnvironmentView environment) {
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
    daemon_options.keep_unused = options.keep_unused;
    daemon_options.store_bytes_max = options.store_bytes_max.value_or(half_of_memory());
    Daemon daemon(io.get_executor(), daemon_options);
    const int status = run_to_exit(
        io, serve(daemon, options, environment, watch::page_key(*secret)), plan::kExitInternal);
    std::fflush(nullptr);
    ::_exit(status);
}

}  // namespace

const cli::FlagTable<ParsedServe>& serve_flags() {
    static const cli::FlagTable<ParsedServe> table(
        "dtrun serve", {own_rows(), copy_rows(), secret_rows<ParsedServe>(), verbosity_rows(),
                        cli::about_rows<ParsedServe>()});
    return table;
}

Result<ParsedServe> parse_serve(cli::Words words) {
    ParsedServe parsed;
    const auto rest = cli::read_options(serve_flags(), words, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked == cli::Ask::nothing && !rest->words.empty())
        return fail(Errc::invalid_input, "'{}': dtrun serve takes options only",
                    rest->words.front());
    const ServeOptions& own = parsed.own;
    if (parsed.asked != cli::Ask::nothing) return parsed;
    if (!own.backup.empty() && !own.restore.empty())
        return fail(Errc::invalid_input, "--backup and --restore are two things");
    if (own.state_directory.empty() && !(own.backup.empty() && own.restore.empty()))
        return fail(Errc::invalid_input, "--backup and --restore need --state DIR");
    if (own.replaces && own.restore.empty())
        return fail(Errc::invalid_input, "--replace goes with --restore");
    return parsed;
}

int run_serve(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_serve(words);
    if (const auto status = cli::settled(parsed, serve_help)) return *status;
    log::init("dtrun serve", parsed->own.verbosity);
    if (!parsed->own.backup.empty()) return back_up(parsed->own);
    if (!parsed->own.restore.empty()) return restore(parsed->own);
    return run_apart([&] { return serve_until_signal(parsed->own, environment); });
}

std::string serve_help() {
    return std::string(kServeIntroduction) + cli::sections(serve_flags().flags(), kDaemonSections);
}

}  // namespace dtrun::commands
