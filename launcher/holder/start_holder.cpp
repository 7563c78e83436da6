#include "launcher/holder/start_holder.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/task_group.h"
#include "base/standard_streams.h"
#include "base/strings.h"
#include "hostfiles/hosts_alike.h"
#include "hostfiles/nodelist.h"
#include "launcher/control/control_place.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/head/channel_opener.h"
#include "launcher/holder/holder.h"
#include "launcher/plan/job_plan.h"
#include "launcher/transport/agent_file.h"
#include "launcher/warm/batch_job.h"
#include "launcher/warm/holder_client.h"
#include "launcher/warm/warm_place.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::holder {
namespace {

constexpr std::uint64_t kDescriptors = 256, kDescriptorsOfHost = 10;
constexpr std::chrono::milliseconds kAskLimit{500};  // for another holder to answer
// What the new process tells, each a line; the second with two numbers behind it.
constexpr std::string_view kKnown = "known", kTried = "tried";

/// The new process's way to who waits for it. Nobody may wait any more.
class News {
public:
    News(Fd words, Fd errors, Wait wait)
        : words_(std::move(words)), errors_(std::move(errors)), wait_(wait) {}

    void say(std::string_view line) {
        if (errors_ && !write_all(errors_.get(), line)) errors_.reset();
    }
    void known() {
        tell(fmt::format("{}\n", kKnown));
        if (wait_ == Wait::until_known) close();
    }
    void tried(unsigned held, unsigned failed) {
        tell(fmt::format("{} {} {}\n", kTried, held, failed));
        close();
    }
    /// Whether somebody who waits has gone, as by Ctrl-C, and wants nothing of it any more.
    bool is_abandoned() const { return is_abandoned_; }
    /// A descriptor that has an error once that is so, until it has tried; none: nobody will.
    Fd watched() const {
        return wait_ == Wait::until_tried ? Fd(::fcntl(words_.get(), F_DUPFD_CLOEXEC, 0)) : Fd();
    }

private:
    void tell(const std::string& text) {
        if (words_ && !write_all(words_.get(), text)) is_abandoned_ = true;
    }
    void close() {
        words_.reset();
        errors_.reset();
    }

    Fd words_, errors_;
    const Wait wait_;
    bool is_abandoned_ = false;
};

bool is_by_ssh(const plan::JobHost& host) {
    return host.transport == plan::Transport::ssh || host.transport == plan::Transport::ssh_command;
}

/// The new process, from its plan to its end.
class HolderProcess {
public:
    /// \param batch_job  end_of_batch_job()
    HolderProcess(asio::io_context& io, plan::JobSpec spec, transport::AgentFile agent,
                  std::string home, News& news, Fd batch_job)
        : executor_(io.get_executor()),
          spec_(std::move(spec)),
          agent_(std::move(agent)),
          home_(std::move(home)),
          news_(news),
          batch_job_(std::move(batch_job)),
          keep_(spec_.options.warm.keep.value_or(kKeepDefault)) {}

    asio::awaitable<void> run();

private:
    asio::awaitable<Result<std::vector<Holder::Host>>> hosts_to_hold();
    asio::awaitable<std::set<std::string>> held_elsewhere(std::vector<std::string> keys);
    Result<void> listen(Holder& holder) const;
    Holder::Host host_of(HostId id, std::string key);
    asio::awaitable<void> watch_caller(Holder& holder);
    asio::awaitable<void> watch_batch_job(Holder& holder);
    void tell_tried(Holder& holder);

    asio::any_io_executor executor_;
    const plan::JobSpec spec_;
    transport::AgentFile agent_;
    std::string home_;
    News& news_;
    Fd batch_job_;
    std::chrono::milliseconds keep_;
    unsigned held_before_ = 0;
    head::JobCredentials credentials_;  // of no job
    head::Hosts no_hosts_{spec_};
    head::AgentConfigBuilder configs_{spec_, credentials_, no_hosts_, {}};
    head::PlannedChannels channels_{executor_, spec_, credentials_, agent_, configs_};
    TaskGroup watching_{executor_};  ///< the caller, until it has tried
    TaskGroup watching_job_{executor_};
};

Holder::Host HolderProcess::host_of(HostId id, std::string key) {
    const auto open = [this, id](Deadline deadline, std::function<void(const char*)> phase) {
        return channels_.open(id, head::AgentTask::keep, deadline, std::move(phase));
    };
    const plan::JobHost& host = spec_.hosts[id];
    return {host.host.name, std::move(key), host.ssh ? host.ssh->route : "", open,
            [this, id] { return channels_.seen_by(id); }};
}

/// Of hosts that ssh reaches each once, but for those that another holder has.
asio::awaitable<Result<std::vector<Holder::Host>>> HolderProcess::hosts_to_hold() {
    std::vector<Holder::Host> hosts;
    std::vector<std::string> keys;
    for (const HostId id : spec_.hosts.hosts()) {
        if (!is_by_ssh(spec_.hosts[id])) continue;
        auto key = co_await channels_.warm_key(id, after(spec_.options.connect_timeout));
        if (!key) co_return std::unexpected(key.error());
        if (std::ranges::count(keys, *key) > 0) continue;
        keys.push_back(*key);
        hosts.push_back(host_of(id, std::move(*key)));
    }
    if (hosts.empty())
        co_return fail(Errc::invalid_input,
                       "there is no log-in to keep: ssh reaches none of these hosts (this machine "
                       "needs none, and agents of a Slurm allocation are srun's)");
    const auto held = co_await held_elsewhere(keys);
    std::erase_if(hosts, [&](const Holder::Host& host) { return held.contains(host.key); });
    held_before_ = static_cast<unsigned>(held.size());
    co_return hosts;
}

/// They are kept for as long as is asked for now. One that is only logged in to may yet fail, and is not held.
asio::awaitable<std::set<std::string>> HolderProcess::held_elsewhere(
    std::vector<std::string> keys) {
    std::set<std::string> held;
    WarmRequest request;
    request.wish = WarmWish::keep;
    request.hosts = std::move(keys);
    request.keep_ms = static_cast<std::uint32_t>(keep_.count());
    const auto holders = warm::holder_sockets(control::control_folders("", home_));
    const auto told = co_await warm::ask_holders(holders, request, after(kAskLimit));
    for (const auto& [path, answer] : told) {
        if (!answer) continue;
        for (const HeldStatus& host : answer->hosts)
            if (host.state == HeldState::ready || host.state == HeldState::leaving)
                held.insert(host.key);
    }
    co_return held;
}

/// Not in XDG_RUNTIME_DIR, which goes away with the user's last session.
Result<void> HolderProcess::listen(Holder& holder) const {
    Result<void> done;
    for (const std::string& folder : control::control_folders("", home_))
        if (done = holder.listen(folder); done) return done;
    return done;
}

/// Jobs that have come meanwhile go on.
asio::awaitable<void> HolderProcess::watch_caller(Holder& holder) {
    Fd watched = news_.watched();
    if (!watched) co_return;
    asio::posix::stream_descriptor caller(executor_, watched.release());
    const auto [error] =
        co_await caller.async_wait(asio::posix::descriptor_base::wait_error, use_tuple);
    if (!error) holder.release_all();
}

/// A scheduler's own tracking may miss a process in a session of its own (Slurm's proctrack/linuxproc does).
asio::awaitable<void> HolderProcess::watch_batch_job(Holder& holder) {
    if (!batch_job_) co_return;
    asio::posix::stream_descriptor job(executor_, batch_job_.release());
    const auto [error] =
        co_await job.async_wait(asio::posix::descriptor_base::wait_read, use_tuple);
    if (!error) holder.end("its batch job has ended");
}

void HolderProcess::tell_tried(Holder& holder) {
    watching_.stop();
    unsigned held = held_before_, failed = 0;
    std::vector<std::pair<std::string, std::string>> gone;
    for (HeldStatus& host : holder.hosts()) {
        const bool is_gone = host.state == HeldState::gone;
        ++(is_gone ? failed : held);
        if (is_gone) gone.emplace_back(std::move(host.host), std::move(host.why));
    }
    for (const auto& [names, why] : group_alike(gone)) log::error("{}: {}", name_hosts(names), why);
    news_.tried(held, failed);
    if (news_.is_abandoned()) holder.release_all();
}

asio::awaitable<void> HolderProcess::run() {
    auto hosts = co_await hosts_to_hold();
    if (!hosts) {
        log::error("{}", hosts.error().message);
        co_return;
    }
    if (hosts->empty()) {
        news_.known();
        news_.tried(held_before_, 0);
        co_return;
    }
    Holder::Options options;
    options.patience = {spec_.options.connect_timeout, spec_.options.wait_for_hosts};
    options.keep = keep_;
    options.log_ins_at_once = static_cast<unsigned>(spec_.options.fanout);
    raise_descriptor_limit(kDescriptors + hosts->size() * kDescriptorsOfHost);
    Holder holder(executor_, std::move(*hosts), options);
    if (const auto listening = listen(holder); !listening) {
        log::error("nothing can be kept: no socket: {}", listening.error().message);
        co_return;
    }
    news_.known();
    watching_.spawn(watch_caller(holder));
    watching_job_.spawn(watch_batch_job(holder));
    const std::function<void()> tried = [&] { tell_tried(holder); };
    co_await holder.run(tried);
    co_await watching_.join();
    watching_job_.stop();
    co_await watching_job_.join();
}

/// \param batch_job  end_of_batch_job()
/// \param others     what the caller had open: files that its hosts may be read from, and what is no business of ours, as
///                locks and pipes of scripts that wait for all who have them
[[noreturn]] void be_holder(plan::Options options, plan::EnvironmentView environment, News news,
                            Fd batch_job, std::vector<Fd> others) {
    ::prctl(PR_SET_NAME, "dtrun-holder");
    const Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        ::dup2(nothing.get(), stream);
    log::set_sink([](void* to, std::string_view line) { static_cast<News*>(to)->say(line); },
                  &news);
    auto spec =
        plan::make_job_spec(std::move(options), environment, plan::directory_here(environment));
    others.clear();
    auto agent = transport::find_agent();
    if (!spec) log::error("{}", spec.error().message);
    if (!agent) log::error("{}", agent.error().message);
    if (!spec || !agent) ::_exit(1);
    asio::io_context io(1);
    HolderProcess process(io, std::move(*spec), std::move(*agent),
                          std::string(plan::find_variable(environment, "HOME").value_or("")), news,
                          std::move(batch_job));
    asio::co_spawn(io, process.run(), [&io](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        io.stop();
    });
    io.run();
    ::_exit(0);
}

/// Reads what the new process tells, up to what is waited for, or its end.
Started wait_for(const Fd& words, Wait wait) {
    Started started;
    std::string text;
    std::array<char, 256> some{};
    for (;;) {
        const ssize_t n = ::read(words.get(), some.data(), some.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return started;
        text.append(some.data(), static_cast<std::size_t>(n));
        for (std::size_t end; (end = text.find('\n')) != std::string::npos;) {
            const std::string line = text.substr(0, end);
            text.erase(0, end + 1);
            const auto parts = split(line, ' ');
            started.has_begun = true;
            if (parts.front() == kKnown && wait == Wait::until_known) return started;
            if (parts.front() != kTried || parts.size() != 3) continue;
            started.held = static_cast<unsigned>(to_int(parts[1], 0, 1 << 30).value_or(0));
            started.failed = static_cast<unsigned>(to_int(parts[2], 0, 1 << 30).value_or(0));
            return started;
        }
    }
}

}  // namespace

/// Nobody has to wait for the new process's end: what forks it ends at once.
Started start_holder(plan::Options options, plan::EnvironmentView environment, Wait wait) {
    auto pipe = make_pipe();
    Fd batch_job = warm::end_of_batch_job(warm::batch_job_here());
    const pid_t between = pipe ? ::fork() : -1;
    if (between < 0) {
        log::error("no log-ins can be kept: {}",
                   pipe ? std::strerror(errno) : pipe.error().message.c_str());
        return {};
    }
    if (between == 0) {
        ::setsid();
        if (::fork() != 0) ::_exit(0);
        pipe->read.reset();
        std::vector<Fd> others =
            inherited_besides(pipe->write.get());  // also that of the batch job
        Fd job(batch_job ? ::fcntl(batch_job.release(), F_DUPFD_CLOEXEC, 0) : -1);
        Fd errors(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
        be_holder(std::move(options), environment,
                  News(std::move(pipe->write), std::move(errors), wait), std::move(job),
                  std::move(others));
    }
    pipe->write.reset();
    while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
    }
    return wait_for(pipe->read, wait);
}

}  // namespace dtrun::holder
