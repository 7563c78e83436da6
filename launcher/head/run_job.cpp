#include "launcher/head/run_job.h"

#include "base/fd.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/run_to_exit.h"
#include "base/process/ending_signals.h"
#include "base/strings.h"
#include "hostfiles/hostfile.h"
#include "launcher/control/control_place.h"
#include "launcher/control/control_server.h"
#include "launcher/discovery/host_watch.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/head/channel_opener.h"
#include "launcher/head/head.h"
#include "launcher/head/job_keeper.h"
#include "launcher/head/job_publisher.h"
#include "launcher/head/job_report.h"
#include "launcher/head/job_server.h"
#include "launcher/head/login_starter.h"
#include "launcher/head/step_starter.h"
#include "launcher/output/output_layout.h"
#include "launcher/output/output_mux.h"
#include "launcher/output/user_terminal.h"
#include "launcher/plan/exit_code.h"
#include "launcher/warm/warm_hosts.h"
#include "launcher/warm/warm_place.h"
#include "rendezvous/asking/direct_store_server.h"
#include "rendezvous/links/server.h"
#include "rendezvous/wire/job_key.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::head {
namespace {

constexpr std::uint64_t kDescriptorsOfHost = 7;
constexpr std::uint64_t kDescriptors = 600;  // all others
/// For the disk to take a record.
constexpr std::chrono::milliseconds kRecord{1'000}, kHurriedRecord{100};
/// For what was asked for.
constexpr std::chrono::milliseconds kReport{10'000}, kHurriedReport{1'000};

bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// --save_pid: a file with our process id while this lives.
class PidFile {
public:
    PidFile() = default;
    ~PidFile() {
        if (!path_.empty()) ::unlink(path_.c_str());
    }
    PidFile(const PidFile&) = delete;
    PidFile& operator=(const PidFile&) = delete;

    /// It must be new: /tmp is everybody's. \param path  empty: none
    Result<void> write(const std::string& path) {
        if (path.empty()) return {};
        constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
        const Fd file(::open(path.c_str(), kFlags, 0644));
        if (!file)
            return fail(Errc::invalid_input, "--save_pid: {}: {}", path, std::strerror(errno));
        path_ = path;
        return write_all(file.get(), std::to_string(::getpid()));
    }

private:
    std::string path_;
};

bool is_local(const plan::JobHost& host) {
    return host.transport == plan::Transport::local;
}

/// The head of a real job, and what connects it to the world.
class RealHead {
public:
    RealHead(asio::io_context& io, plan::JobSpec& spec, StartTeller& teller);

    /// Before open(). Errc: as that
    Result<void> open_report();
    /// Errc: invalid_input (the user can mend it), else internal
    Result<void> open(transport::AgentFile agent);
    /// The job cannot begin. \return `status`
    int refuse(int status, const std::string& why);
    asio::awaitable<int> run();

private:
    Result<void> open_output();
    Result<void> open_publisher();
    Result<ServerPlace> listen();
    void open_store(ServerPlace& place);
    void keep_signals();
    Result<void> take_name();
    void open_control();
    void suspend();
    void watch_hosts();
    void apply(const discovery::HostChanges& changes);
    void add_starters(transport::AgentFile agent, ServerPlace place);
    asio::awaitable<void> watch_signals();
    void got_signal(int signal);
    asio::awaitable<int> serve_others(int status);

    asio::io_context& io_;
    plan::JobSpec& spec_;
    JobCredentials credentials_;
    Hosts hosts_;
    std::unique_ptr<output::OutputMux> output_;
    std::unique_ptr<Head> head_;
    std::unique_ptr<JobPublisher> publisher_;  ///< if the user wants the job shown
    std::unique_ptr<discovery::HostWatch> host_watch_;
    std::unique_ptr<Server> server_;
    std::unique_ptr<control::ControlServer> control_;
    StartTeller& teller_;
    JobKeeper keeper_;
    std::optional<JobReport> report_;
    Fd name_;  ///< held as long as the job has it
    output::UserTerminal terminal_;
    std::unique_ptr<JobServer> job_server_;  ///< of nodes that meet here
    int interrupted_ = 0;                    ///< by this signal
    bool finishing_ = false;  ///< the job is over, and the publisher has its last words
    std::unique_ptr<AgentConfigBuilder> configs_;
    std::unique_ptr<PlannedChannels> channels_;
    std::unique_ptr<warm::WarmHosts> warm_;  ///< unless they are not to be used
    asio::signal_set signals_;
    TaskGroup tasks_{io_.get_executor()};
};

RealHead::RealHead(asio::io_context& io, plan::JobSpec& spec, StartTeller& teller)
    : io_(io),
      spec_(spec),
      hosts_(spec),
      teller_(teller),
      keeper_(spec, teller, hex(credentials_.id)),
      signals_(io) {}

/// From here on there is more to end than this process, and until here a signal ends that at once: a file that is
/// opened may be on a file system that does not answer.
void RealHead::keep_signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
        if (!is_ignored(signal)) signals_.add(signal);
    if (spec_.options.pty) signals_.add(SIGWINCH);
    exit_at_unheard_signals();
}

Result<void> RealHead::open_report() {
    if (spec_.options.show.report.empty()) return {};
    auto opened = JobReport::open(spec_.options, hex(credentials_.id));
    if (!opened) return std::unexpected(opened.error());
    report_ = std::move(*opened);
    return {};
}

int RealHead::refuse(int status, const std::string& why) {
    log::set_sink(nullptr, nullptr);
    log::error("{}", why);
    teller_.say(fmt::format("dtrun: {}\n", why));
    if (report_) report_->refuse(status, why);
    return status;
}

Result<void> RealHead::open(transport::AgentFile agent) {
    raise_descriptor_limit(kDescriptors + hosts_.count() * kDescriptorsOfHost);
    if (auto taken = take_name(); !taken) return taken;
    if (auto opened = open_output(); !opened) return opened;
    head_ = std::make_unique<Head>(io_, spec_, hosts_, *output_, [this] { suspend(); });
    head_->set_end([this](int signal) { got_signal(signal); });
    if (teller_.is_awaited()) head_->set_started([this] { teller_.started(); });
    if (spec_.options.pty) head_->lend(terminal_);
    head_->record().set_id(hex(credentials_.id));
    if (report_) head_->record().add_listener(*report_);
    if (auto opened = open_publisher(); !opened) return opened;
    auto place = listen();
    if (!place) return std::unexpected(place.error());
    open_store(*place);
    if (spec_.daemon && spec_.daemon->serve) {
        auto opened = JobServer::open(io_.get_executor(), *spec_.daemon, spec_.options);
        if (!opened) return std::unexpected(opened.error());
        job_server_ = std::move(*opened);
        // Who joins another command of this machine is any node; who serves is the first.
        std::optional<int>& node_rank = spec_.options.join->node_rank;
        if (job_server_ && !node_rank) node_rank = 0;
    }
    add_starters(std::move(agent), std::move(*place));
    watch_hosts();
    teller_.files_opened();
    keep_signals();
    return {};
}

Result<void> RealHead::open_publisher() {
    const plan::ShowOptions& options = spec_.options.show;
    if (!JobPublisher::is_wanted(options)) return {};
    publisher_ = std::make_unique<JobPublisher>(io_.get_executor(), head_->inspector(),
                                                head_->record(), *output_);
    return publisher_->open(options);
}

std::string_view variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Where control sockets may be.
std::vector<std::string> folders_here() {
    return control::control_folders(variable("XDG_RUNTIME_DIR"), variable("HOME"));
}

Result<void> RealHead::take_name() {
    const std::string& name = spec_.options.history.name;
    if (name.empty()) return {};
    auto held = control::hold_name(name, control::running_jobs(folders_here()));
    if (!held) return fail(held.error(), "--name");
    name_ = std::move(*held);
    return {};
}

/// For `dtrun stacks` and its like. The job runs without as well.
void RealHead::open_control() {
    const plan::HistoryOptions& asked = spec_.options.history;
    const std::string job = hex(credentials_.id);
    std::string why;
    // XDG_RUNTIME_DIR goes away when its user logs out, and a detached job does not.
    for (const std::string& folder :
         asked.detach ? control::control_folders("", variable("HOME")) : folders_here()) {
        auto opened = control::ControlServer::open(
            io_.get_executor(), folder, control::socket_name(job, asked.name), head_->inspector());
        if (!opened) {
            // There anybody may have made it, to keep us out.
            const bool is_taken =
                opened.error().code == Errc::denied && folder.starts_with("/tmp/");
            log::write(is_taken ? log::Level::normal : log::Level::verbose,
                       fmt::format("no control socket there: {}", opened.error().message));
            why = opened.error().message;
            continue;
        }
        control_ = std::move(*opened);
        return head_->inspector().serve(*control_);
    }
    log::warn(
        "`dtrun jobs` and commands that look into this job will not find it: its socket cannot be "
        "made: {}",
        why);
}

/// As the shell expects it at Ctrl-Z, which it sees as a signal: in a raw terminal it is a key of the rank's.
void RealHead::suspend() {
    const bool was_raw = terminal_.is_raw();
    terminal_.restore();
    ::raise(SIGSTOP);
    if (was_raw) terminal_.make_raw();
}

/// Hosts of an elastic job may come and go, as a script or a file lists them.
void RealHead::watch_hosts() {
    if (!spec_.discovers_hosts()) return;
    const plan::ElasticOptions& asked = *spec_.options.elastic;
    discovery::HostSource source;
    source.command = spec_.discovery;
    source.interval = asked.discovery_interval;
    source.name = asked.discovery_script;
    source.parse = [name = source.name, slots = asked.slots_per_host](std::string_view text) {
        return parse_host_listing(text, name, slots);
    };
    if (asked.discovery_script.empty()) {
        source.name = source.file = spec_.options.hostfile;
        source.parse = [name = source.name](std::string_view text) {
            return parse_hostfile(text, name);
        };
    }
    if (asked.ranks_per_host > 0)
        source.parse = [parse = source.parse, each = asked.ranks_per_host](std::string_view text) {
            auto hosts = parse(text);
            if (hosts)
                for (Host& host : *hosts) host.slots = each;
            return hosts;
        };
    host_watch_ = std::make_unique<discovery::HostWatch>(
        io_.get_executor(), std::move(source), spec_.placement.hosts,
        [this](const std::string& name) { return head_->has_agent(name); },
        [this](const discovery::HostChanges& changes) { apply(changes); });
}

void RealHead::apply(const discovery::HostChanges& changes) {
    if (head_->is_ending()) return host_watch_->stop();
    for (const Host& host : changes.listed) head_->list_host(host);
    for (const std::string& name : changes.gone) head_->delist_host(name);
    if (!changes.listed.empty())
        raise_descriptor_limit(kDescriptors + hosts_.count() * kDescriptorsOfHost);
}

Result<void> RealHead::open_output() {
    std::vector<std::string> rank_hosts;
    for (const RankPlace& place : spec_.placement.ranks)
        rank_hosts.push_back(spec_.host_of(static_cast<plan::SlotId>(place.rank)));
    const auto wake = [this] {
        asio::post(io_, [this] {
            if (head_) head_->output_left();
        });
    };
    auto options = output::output_options(spec_, hex(credentials_.id));
    if (!options) return std::unexpected(options.error());
    keeper_.keep_output(*options);
    if (spec_.options.pty) options->is_raw_terminal = [this] { return terminal_.is_raw(); };
    auto output = output::OutputMux::create(std::move(*options), rank_hosts, wake);
    if (!output) return std::unexpected(output.error());
    output_ = std::move(*output);
    log::set_sink(
        [](void* head, std::string_view line) {
            auto& self = *static_cast<RealHead*>(head);
            self.output_->message(line);
            self.teller_.say(line);
        },
        this);
    return {};
}

/// For ranks that ask without their agents.
void RealHead::open_store(ServerPlace& place) {
    DirectStoreServer* const store = head_->direct_store();
    if (store == nullptr) return;
    // Who tries in vain costs time, too: so no rank of large jobs does, and one of each host at least of others.
    constexpr auto kEachMax = static_cast<std::uint32_t>(DirectStoreServer::kRemoteMax);
    if (!spec_.options.encrypt && !hosts_.tree().is_relay(HostId{0}))
        place.store_by_tcp = std::max(kEachMax / std::max(hosts_.count(), 1u), 1u);
    if (!spec_.discovers_hosts() && !std::ranges::any_of(spec_.hosts, is_local)) return;
    auto name = store->open();
    if (!name) log::info("ranks of this machine ask their agent: {}", name.error().message);
    place.store_socket = name.value_or("");
}

Result<ServerPlace> RealHead::listen() {
    const auto secret_of = [this, store = store_key_of(credentials_.secret)](const JobId& job) {
        if (job == credentials_.id) return std::optional(credentials_.secret);
        return job == store.id ? std::optional(store.secret) : std::nullopt;
    };
    const auto admit = [this](const JobId& job, Connection connection) {
        if (job == credentials_.id) return head_->admit(std::move(connection));
        if (auto* const store = head_->direct_store()) store->admit(std::move(connection));
    };
    ServerOptions options;
    options.encrypt = spec_.options.encrypt;
    server_ = std::make_unique<Server>(io_.get_executor(), secret_of, admit, options);

    ServerPlace place;
    const bool all_local = !spec_.discovers_hosts() && std::ranges::all_of(spec_.hosts, is_local);
    std::vector<std::string> listen_on{"127.0.0.1"};
    const auto& wanted = spec_.options.network_interfaces;
    std::vector<InterfaceAddress> own;
    if (!all_local) own = interface_addresses();
    for (const InterfaceAddress& address : own) {
        if (address.loopback) continue;
        if (!wanted.empty() && std::ranges::find(wanted, address.interface) == wanted.end())
            continue;
        place.addresses.push_back(address.address);
        if (!wanted.empty()) listen_on.push_back(address.address);
    }
    if (!all_local && wanted.empty()) listen_on = {"::"};
    if (!all_local && place.addresses.empty())
        return fail(Errc::invalid_input,
                    "this machine has no network interface{}{} that hosts could reach",
                    wanted.empty() ? "" : " ", join_names(wanted));
    auto port = server_->listen(listen_on, 0);
    if (!port && listen_on.front() == "::") port = server_->listen({"0.0.0.0"}, 0);  // no IPv6 here
    if (!port) return std::unexpected(port.error());
    place.port = *port;
    return place;
}

void RealHead::add_starters(transport::AgentFile agent, ServerPlace place) {
    configs_ = std::make_unique<AgentConfigBuilder>(spec_, credentials_, hosts_, std::move(place));
    channels_ = std::make_unique<PlannedChannels>(io_.get_executor(), spec_, credentials_, agent,
                                                  *configs_);
    if (!spec_.options.warm.off) {
        warm_ = std::make_unique<warm::WarmHosts>(
            io_.get_executor(), warm::holder_sockets(folders_here()), spec_.options.warm.keep);
        channels_->use(*warm_);
    }
    head_->add_starter(std::make_unique<LoginStarter>(LoginStarter::Parts{
        io_.get_executor(), spec_, hosts_, *configs_, *channels_, credentials_.secret}));
    const auto start_process = [this](const std::vector<std::string>& argv,
                                      const std::vector<std::string>& env) {
        return transport::start_process(io_.get_executor(), argv, env);
    };
    head_->add_starter(std::make_unique<StepStarter>(StepStarter::Parts{
        io_.get_executor(), spec_, hosts_, *configs_, std::move(agent), start_process}));
}

asio::awaitable<int> RealHead::run() {
    tasks_.spawn(watch_signals());
    if (host_watch_) host_watch_->start();
    // While agents start. Who has started a detached job may ask for it at once.
    asio::post(io_, [this] {
        open_control();
        keeper_.begin(head_->record().program());
        teller_.has_id(hex(credentials_.id));
    });
    int status = co_await head_->run();
    finishing_ = publisher_ != nullptr;
    if (finishing_ && head_->is_in_a_hurry()) publisher_->hurry();
    bool is_told = true;
    if (finishing_) is_told = co_await publisher_->finish();
    if (!is_told && status == 0) status = plan::kExitInternal;
    name_.reset();  // who waits for the end may start another job of this name
    if (control_) control_->stop();
    if (host_watch_) host_watch_->stop();
    server_->stop();
    if (job_server_) status = co_await serve_others(status);
    const bool hurries = head_->is_in_a_hurry();
    if (report_)
        status = report_->write(status, head_->ended_view(), hurries ? kHurriedReport : kReport);
    keeper_.finish(status, head_->record(), hurries ? kHurriedRecord : kRecord);
    co_return status;
}

/// The job is over here; others may go on until their ranks have ended.
asio::awaitable<int> RealHead::serve_others(int status) {
    co_await job_server_->finish();
    if (interrupted_ != 0 && status == 0) co_return plan::kExitSignalBase + interrupted_;
    co_return status;
}

asio::awaitable<void> RealHead::watch_signals() {
    for (;;) {
        const auto [error, signal] = co_await signals_.async_wait(use_tuple);
        if (error) co_return;
        ending_signal_heard();
        if (signal == SIGWINCH) {
            head_->terminal_resized();
            continue;
        }
        got_signal(signal);
    }
}

/// From the system, or from `dtrun end`.
void RealHead::got_signal(int signal) {
    head_->signalled(signal);
    const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP ||
                      signal == SIGQUIT || signal == SIGKILL;
    if (ends && finishing_) publisher_->hurry();
    if (!ends || !job_server_ || std::exchange(interrupted_, signal) != 0) return;
    job_server_->interrupt(signal);
}

int run_here(plan::JobSpec& spec, StartTeller& teller) {
    // It lives on while the process ends: handlers that are still under way refer to it.
    auto& io = *new asio::io_context(1);
    auto& head = *new RealHead(io, spec, teller);
    PidFile pid_file;
    auto opened = head.open_report();
    if (opened) opened = pid_file.write(spec.options.pid_file);
    if (opened) {
        auto agent = transport::find_agent();
        if (!agent) return head.refuse(plan::kExitAgent, agent.error().message);
        opened = head.open(std::move(*agent));
    }
    if (!opened) {
        const bool is_usage = opened.error().code == Errc::invalid_input;
        return head.refuse(is_usage ? plan::kExitUsage : plan::kExitInternal,
                           opened.error().message);
    }
    return run_to_exit(io, head.run(), plan::kExitInternal);
}

}  // namespace

int run_job(plan::JobSpec& spec, StartTeller& teller) {
    return run_apart([&] { return run_here(spec, teller); });
}

}  // namespace dtrun::head
