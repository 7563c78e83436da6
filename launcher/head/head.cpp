#include "launcher/head/head.h"

#include "base/freed_memory.h"
#include "base/log.h"
#include "base/signal_names.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/nodelist.h"
#include "launcher/head/daemon_assigner.h"
#include "launcher/head/own_assigner.h"
#include "launcher/plan/one_machine.h"
#include "launcher/report/outcome.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace dtrun::head {
namespace {

/// Time from the second Ctrl-C to dtrun's end, even if agents do not answer or nobody reads output.
constexpr std::chrono::milliseconds kImpatience{1'500};
/// Time from Ctrl-Z until this process stops, for frames that pass it on to leave.
constexpr std::chrono::milliseconds kSuspendDelay{50};
/// Time at the end for output to be written; less after a second Ctrl-C.
constexpr std::chrono::milliseconds kWriteLimit{2'000}, kHurriedWriteLimit{100};

JobOptions job_options(const plan::Options& asked) {
    JobOptions options;
    options.keep_going = asked.keep_going;
    options.outlives_hosts = asked.recovers_itself;
    options.ranks_to_end_well = static_cast<std::uint32_t>(asked.ranks_to_end_well);
    options.grace = asked.grace;
    options.elastic = asked.elastic.has_value();
    options.is_part = asked.join.has_value();
    options.min_uptime = asked.min_uptime;
    options.max_restarts = asked.join ? 0 : asked.max_restarts;  // a daemon restarts ranks itself
    return options;
}

/// Who debugs takes his time, and the other ranks wait for him.
std::optional<std::chrono::milliseconds> init_timeout(const plan::Options& asked) {
    return asked.debug_rank ? std::nullopt : asked.init_timeout;
}

/// Until when hosts are waited for, for people.
std::string limit_of_start(const plan::Options& asked) {
    const std::chrono::milliseconds hosts = asked.wait_for_hosts;
    if (hosts.count() > 0 && (!asked.start_timeout || hosts < *asked.start_timeout))
        return until_text(hosts, "--wait-for-hosts");
    return until_text(asked.start_timeout, "--start-timeout");
}

PerHost<std::uint32_t> ranks_on_host(const plan::JobSpec& spec) {
    PerHost<std::uint32_t> counts;
    for (const plan::JobHost& host : spec.hosts)
        counts.push_back(static_cast<std::uint32_t>(host.ranks.size()));
    return counts;
}

PerHost<std::string> host_names(const plan::JobSpec& spec) {
    PerHost<std::string> names;
    for (const plan::JobHost& host : spec.hosts) names.push_back(host.host.name);
    return names;
}

/// Hosts some of whose ranks read dtrun's standard input.
std::vector<HostId> input_readers(const plan::JobSpec& spec) {
    const StdinTarget& target = spec.options.stdin_target;
    std::vector<HostId> readers;
    for (const HostId host : spec.hosts.hosts()) {
        const auto& ranks = spec.hosts[host].ranks;
        const bool has_rank =
            std::ranges::find(ranks, static_cast<plan::SlotId>(target.rank)) != ranks.end();
        if (target.kind == StdinTarget::Kind::all ||
            (target.kind == StdinTarget::Kind::rank && has_rank))
            readers.push_back(host);
    }
    return readers;
}

std::string ending_text(const Exited& exited) {
    if (exited.signal == 0 && exited.code == 0) return "ended well";
    if (exited.signal == 0) return fmt::format("exited with {}", exited.code);
    const auto name = signal_name(exited.signal);
    return name.empty() ? fmt::format("ended by signal {}", exited.signal)
                        : fmt::format("ended by {}", name);
}

}  // namespace

Head::Head(asio::io_context& io, plan::JobSpec& spec, Hosts& hosts, output::Output& output,
           std::function<void()> suspend)
    : io_(io),
      spec_(spec),
      hosts_(hosts),
      suspend_(std::move(suspend)),
      tasks_(io.get_executor()),
      job_(ranks_on_host(spec), job_options(spec.options)),
      stop_deadlines_(hosts.tree(), spec.hosts.size()),
      deadlocks_(
          static_cast<std::uint32_t>(spec.placement.world_size()),
          [&hosts](Rank rank) { return hosts.name_of_host(rank); }, init_timeout(spec.options)),
      detector_(io.get_executor(), spec.options.heartbeat_timeout),
      progress_(io.get_executor(), output, host_names(spec)),
      stdin_(io.get_executor(), input_readers(spec),
             [this](HostId host, std::string_view bytes) {
                 hosts_.send(host, encode(Input{std::string(bytes)}));
             }),
      record_(spec, hosts, job_),
      inspector_(
          io.get_executor(), spec, hosts, stdin_, record_, router_.hosts,
          [this] { return deadlocks_.describe(Clock::now()); },
          [this](int signal) { end_ ? end_(signal) : end_by(signal); }),
      output_(io.get_executor(), spec, output, hosts, stop_deadlines_, inspector_, router_.hosts,
              [this] { end_by(SIGPIPE); }),
      debugger_(io.get_executor(), hosts, router_.hosts,
                [this](std::string_view text) { output_.message(text); }),
      sessions_(io.get_executor(), router_, hosts,
                [this](AgentSession& agent, const Error& why) { agent_closed(agent, why); }),
      over_(io, Timer::time_point::max()) {
    if (spec.daemon)
        assigner_ = std::make_unique<DaemonAssigner>(context());
    else
        assigner_ = std::make_unique<OwnAssigner>(context(), sessions_);
    subscribe();
}

Head::~Head() = default;

void Head::subscribe() {
    auto& connections = router_.connections;
    connections.on<Join>(this, &Head::agent_joined);
    connections.on<RelayLost>(this, &Head::relay_lost);
    for (const FrameType type : kExchangedUpwards)
        connections.on(type, [this, type](AgentSession& agent, std::string_view payload) {
            return assigner_->exchange(agent.peer(), {type, payload});
        });
    auto& hosts = router_.hosts;
    hosts.on<Started>(this, &Head::ranks_started);
    hosts.on<Exited>(this, &Head::rank_exited);
    hosts.on<OutputEnd>(this, &Head::output_ended);
    hosts.on<InputCredit>(this, &Head::input_taken);
    hosts.on<SignalRanks>(this, &Head::agent_signalled);
    hosts.on<Waits>(this, &Head::ranks_wait);
    hosts.on<MpiStatus>(this, &Head::mpi_news);
    hosts.on<Done>(this, &Head::agent_done);
}

JobContext Head::context() {
    return {io_.get_executor(),
            spec_,
            hosts_,
            router_.hosts,
            job_,
            stop_deadlines_,
            deadlocks_,
            output_,
            stdin_,
            [this] { decide(); },
            [this] { all_started(); },
            [this](HostId host) { connect(host); }};
}

void Head::add_starter(std::unique_ptr<HostStarter> starter) {
    starter->subscribe(router_.hosts);
    starters_.push_back(std::move(starter));
}

asio::awaitable<int> Head::run() {
    record_.job_started();
    tasks_.spawn(watch_start_timeout());
    tasks_.spawn(watch_time_limit());
    tasks_.spawn(detector_.run([this] { return beat(); }));
    if (log::enabled(log::Level::normal)) progress_.start(limit_of_start(spec_.options));
    for (const auto& starter : starters_) starter->start(static_cast<StartEvents&>(*this));
    while (!is_over() && !hurry_) co_await over_.async_wait(use_tuple);

    co_await assigner_->leave();
    progress_.finish();
    for (const auto& starter : starters_) {
        co_await starter->end(hurry_);
        if (std::string why = starter->why_gone(); !why.empty()) job_.set_gone(std::move(why));
    }
    stdin_.stop();
    co_await output_.drain(hurry_);
    if (terminal_) terminal_->restore();
    co_return finish();
}

asio::awaitable<void> Head::join() {
    for (const auto& starter : starters_) co_await starter->join();
    co_await assigner_->join();
    co_await inspector_.join();
    debugger_.stop();
    co_await debugger_.join();
    co_await sessions_.join();
    tasks_.stop();
    co_await tasks_.join();
}

bool Head::is_over() const {
    return job_.over() &&
           std::ranges::none_of(starters_, [](const auto& starter) { return starter->is_busy(); });
}

/// Carries out what the state machine has decided.
void Head::decide() {
    if (job_.take_start()) assigner_->begin();
    if (const auto because = job_.take_restart()) {
        record_.restart(*because);
        assigner_->restart(*because);
    }
    if (const auto order = job_.take_stop()) stop_hosts(*order);
    if (started_ && job_.all_run()) std::exchange(started_, nullptr)();
    if (job_.over()) over_.cancel();
    if (detector_.is_calm()) detector_.hasten(pace());
}

void Head::stop_hosts(const Job::Order& order) {
    if (!std::exchange(told_ending_, true)) record_.job_ending();
    start_over();
    assigner_->wake();
    const auto grace =
        static_cast<std::uint32_t>(std::min<long long>(order.grace.count(), UINT32_MAX));
    // A signal that dtrun was sent may have been sent to every process of Slurm's job.
    const report::JobOutcome& outcome = job_.outcome();
    const bool in_slurm = std::ranges::any_of(spec_.hosts, [](const plan::JobHost& host) {
        return host.transport == plan::Transport::slurm;
    });
    const bool by_scheduler =
        in_slurm && outcome.cause == Job::Cause::interrupted && outcome.signal == order.signal;
    hosts_.send_to_all(encode(Stop{order.signal, grace, "", by_scheduler}));
    assigner_->ending();
    killed_at_ = after(order.grace);
    stop_deadlines_.stop(order.grace, Clock::now());
}

/// No host is waited for any more.
void Head::start_over() {
    starting_ = false;
    for (const auto& starter : starters_) starter->look();
    progress_.finish();
}

void Head::all_started() {
    start_over();
    ++worlds_;
    was_busy_ = true;
    inspector_.generation_begins();
    if (terminal_) terminal_->generation_begins();
    for (const auto& [directory, hosts] : std::exchange(fallback_directories_, {})) {
        if (spec_.directory.empty())
            log::warn(
                "the directory in which dtrun was started has been removed: ranks on {} run in {}",
                name_hosts(hosts), directory);
        else
            log::warn("{}: {} is not there, or may not be entered: ranks run in {}",
                      name_hosts(hosts), spec_.directory, directory);
    }
    for (const auto& [machine, hosts] : std::exchange(twins_, {})) {
        std::vector<std::string> names;
        for (const HostId host : hosts) names.push_back(hosts_.name(host));
        log::warn("{} are one machine: their ranks share its devices and processors",
                  name_hosts(names));
    }
}

void Head::host_phase(HostId host, const char* phase) {
    hosts_[host].phase = phase;
    progress_.host_phase(host, phase);
}

void Head::host_failed(HostId host, const Error& why) {
    record_.host_failed(host, why.message);
    progress_.host_failed(host);
    job_.host_failed({host, report::failure_kind(why.code), why.message});
    assigner_->failed(host, why.message);
    for (const auto& starter : starters_) starter->look();
    decide();
}

bool Head::is_starting() const {
    return spec_.options.elastic ? !job_.ending() : starting_;
}

/// Hosts of an elastic job may be lost and come back.
void Head::connect(HostId host) {
    hosts_.forget(host);
    record_.host_connecting(host);
    job_.host_connecting(host);
    for (const auto& starter : starters_) starter->connect(host);
}

void Head::list_host(const Host& host) {
    const auto known = static_cast<std::uint32_t>(spec_.placement.ranks.size());
    const auto listed = plan::list_host(spec_, host);
    if (!listed) return log::warn("{}: {}", host.name, listed.error().message);
    if (!hosts_.has(*listed)) {
        job_.host_added();
        stop_deadlines_.host_added();
        progress_.host_added(host.name);
    }
    hosts_.grow();
    if (spec_.placement.ranks.size() > known) output_.add_slots(plan::SlotId{known});
    assigner_->listed(*listed, static_cast<std::uint32_t>(host.slots));
    decide();
}

void Head::delist_host(const std::string& name) {
    const auto host = hosts_.named(name);
    if (!host) return;
    assigner_->listed(*host, 0);
    decide();
}

bool Head::has_agent(const std::string& name) const {
    const auto host = hosts_.named(name);
    return host && hosts_[*host].session != nullptr;
}

bool Head::is_settled(HostId host) const {
    return hosts_[host].session != nullptr || hosts_[host].done || job_.has_failed(host);
}

asio::awaitable<void> Head::watch_start_timeout() {
    if (!spec_.options.start_timeout) co_return;
    Timer timer(io_, *spec_.options.start_timeout);
    co_await timer.async_wait(use_tuple);
    // Every host that is not ready says what it was doing.
    for (const HostId host : job_.connecting()) {
        record_.host_failed(host, fmt::format("not ready in time: {}", hosts_[host].phase));
        job_.host_late({host, report::StartFailure::timed_out, hosts_[host].phase});
    }
    job_.start_timed_out();
    decide();
}

void Head::admit(Connection connection) {
    sessions_.admit(std::move(connection), assigner_->towards());
}

Result<void> Head::agent_joined(AgentSession& agent, Join join) {
    const HostId host = join.host;
    const bool relayed = agent.host().has_value();  // it has joined itself, and relays for this one
    const bool known = hosts_.has(host);
    log::info("{}: agent {} on {} joined {} from {}", known ? hosts_.name(host) : "?",
              join.agent_pid, join.hostname, relayed ? "a relay" : agent.local_address(),
              relayed ? join.address : agent.peer_address());
    if (!known || hosts_[host].joined) {
        if (relayed) return {};  // its relay has refused it
        return fail(Errc::denied, "this host has joined already, or is not part of the job");
    }
    hosts_.joined(host, relayed ? join.address : agent.peer_address(), join);
    HostState& state = hosts_[host];
    state.session = &agent;
    state.relayed = relayed;
    if (!relayed) {
        agent.set_host(host);
        assigner_->agent_came(agent.peer());
    }
    for (const auto& starter : starters_) starter->look();
    Member member;
    member.name = hosts_.name(host);
    member.slots = static_cast<std::uint32_t>(spec_.hosts[host].ranks.size());
    member.peer_address = state.address;
    member.server_address = agent.local_address();
    member.free_port = join.free_port;
    member.addresses = join.addresses;
    stop_deadlines_.joined(host);
    check_twin(host, join);
    if (join.problem != HostProblem::none) {
        hosts_.send(host, encode(Stop{}));
        state.refused = true;
        progress_.host_failed(host);
        record_.host_failed(host, join.problem_text);
        job_.host_failed({host, report::failure_kind(join.problem), join.problem_text});
        assigner_->failed(host, join.problem_text);
        decide();
        return {};
    }
    if (spec_.directory != join.directory)
        fallback_directories_[join.directory].push_back(hosts_.name(host));
    progress_.host_ready(host);
    record_.host_joined(host);
    job_.host_ready(host);
    assigner_->entered(host, std::move(member));
    if (job_.ending()) hosts_.send(host, encode(Stop{}));  // too late for it
    decide();
    return {};
}

/// A machine that has joined by another name cannot join again, unless the user wants ranks to share.
void Head::check_twin(HostId host, Join& join) {
    const auto twin = hosts_.twin_of(host);
    if (!twin || join.problem != HostProblem::none) return;
    if (spec_.options.oversubscribe) {
        twins_[join.machine].insert({*twin, host});
        return;
    }
    join.problem = HostProblem::other;
    join.problem_text =
        fmt::format("one machine with {}: {}", hosts_.name(*twin), plan::kOneMachineAdvice);
}

Pace Head::beat() {
    for (const auto& starter : starters_) starter->beat(detector_.lateness());
    assigner_->tick();
    watch_waits();
    watch_answers();
    tell_ending();
    // Agents wait for what they have sent to be taken, and a disk that is silent takes nothing.
    if (asked_to_end_ && !hurry_ && output_.is_disk_silent()) hurry();
    const Sessions::Silence silence = sessions_.beat(detector_);
    for (const auto& [session, silent_for] : silence.lost)
        if (!is_here(*session->host())) give_up(*session, describe_silence(silent_for));
    const Pace pace = this->pace();
    if (pace == Pace::alert || (pace == Pace::calm && silence.is_any_late)) return Pace::alert;
    // What a start needs is several times of what a job needs that runs.
    if (std::exchange(was_busy_, false)) give_freed_memory_back();
    detector_.rest(silence.asked);
    return pace;
}

/// Alert unless all ranks run, and nothing is under way that beats decide.
Pace Head::pace() const {
    const Deadline now = Clock::now();
    if (!job_.all_run() || deadlocks_.is_watching(now) || !assigner_->is_calm(now))
        return Pace::alert;
    return is_alone() && deadlocks_.is_idle() ? Pace::still : Pace::calm;
}

/// No other machine is part of the job, or may become one.
bool Head::is_alone() const {
    return spec_.hosts.size() == 1 && is_here(HostId{0}) && !spec_.options.elastic && !spec_.daemon;
}

/// An agent of this machine that is silent is starved, or stopped by somebody; its end cuts its connection.
bool Head::is_here(HostId host) const {
    return spec_.hosts[host].transport == plan::Transport::local;
}

void Head::give_up(AgentSession& session, const std::string& why) {
    session.link().close();
    agent_closed(session, Error{Errc::timed_out, why});
}

void Head::ranks_started(HostId host, const Started& started) {
    record_.ranks_started(host, started);
    job_.ranks_started(host);
    for (const RankPid& rank : started.ranks) {
        const auto planned = hosts_.planned_on(host, rank.place);
        if (!planned) continue;
        auto& by_pid = hosts_[host].ranks;
        // In a long job one process after the other may be there.
        std::erase_if(by_pid, [&planned](const auto& other) { return other.second == *planned; });
        by_pid[rank.pid] = *planned;
        if (terminal_ && terminal_->is_of(*planned)) terminal_->rank_started();
    }
    for (const RankPid& rank : started.ranks) {
        const std::string threads =
            rank.threads > 0 ? fmt::format(" with OMP_NUM_THREADS={}", rank.threads) : "";
        log::info("rank {} runs on {} as pid {}{}", rank.rank, hosts_.name(host), rank.pid,
                  threads);
        if (!rank.binding.empty())  // asked for, also with --quiet
            log::write(log::Level::quiet, fmt::format("rank {} on {}: {}", rank.rank,
                                                      hosts_.name(host), rank.binding));
    }
    decide();
}

void Head::rank_exited(HostId host, const Exited& exited) {
    const auto planned = hosts_.planned_on(host, exited.place);
    const bool was_there = !exited.was_none();  // else another process may be there by now
    if (planned && was_there) record_.rank_exited(*planned, host, exited);
    if (!assigner_->is_relevant(exited) || !planned) return;
    if (was_there) {
        inspector_.rank_ended(*planned, exited);
        log::info("rank {} {}", exited.rank, ending_text(exited));
    }
    if (assigner_->defer_failure(host, exited)) return;
    if (exited.sent_signal == 0)
        deadlocks_.rank_ended(exited.rank, exited.pid, exited.mpi, Clock::now());
    job_.rank_exited(host, exited);
    if (auto left = deadlocks_.left_mpi()) job_.left_mpi(std::move(*left));
    watch_waits();
    decide();
}

void Head::output_ended(HostId host, const OutputEnd& end) {
    const auto rank = hosts_.planned_on(host, end.place);
    if (!rank) return;
    inspector_.output_ended(*rank, end.stream);
    if (terminal_ && terminal_->is_of(*rank)) terminal_->rank_ended();
    output_.finish(*rank, end.stream);
}

void Head::input_taken(HostId host, const InputCredit& credit) {
    stdin_.credit(host, credit.bytes);
    inspector_.input_taken();
}

/// The scheduler that has started the agent sends it a signal to end the job.
void Head::agent_signalled(HostId host, const SignalRanks& signal) {
    const auto name = signal_name(signal.signal);
    if (job_.ending() || name.empty()) return;
    log::warn("Slurm ends the job: its agent on {} got {}", hosts_.name(host), name);
    job_.end(signal.signal);
    decide();
}

void Head::lend(output::UserTerminal& terminal) {
    terminal_.emplace(
        terminal, static_cast<plan::SlotId>(*spec_.options.pty), [this] { terminal_resized(); },
        [this] { end_by(SIGINT); });
    stdin_.set_filter([this](std::string_view bytes) { return terminal_->typed(bytes); });
}

void Head::terminal_resized() {
    if (!spec_.options.pty || !output::UserTerminal::is_there()) return;
    const Bytes frame = encode(Resize{output::UserTerminal::size()});
    const auto rank = static_cast<std::size_t>(*spec_.options.pty);
    hosts_.send(plan::host_of(spec_.placement.ranks[rank]), frame);
}

void Head::agent_done(HostId host, const Done& done) {
    HostState& state = hosts_[host];
    if (state.done) return;
    state.done = true;
    stdin_.host_gone(host);
    inspector_.host_gone(host);
    AgentSession* session = std::exchange(state.session, nullptr);
    if (session != nullptr && !state.relayed) {
        assigner_->agent_went(session->peer());
        sessions_.close(*session);
    }
    job_.host_done(host, done.orphans);
    if (!job_.ending()) {
        record_.host_left(host);
        for (const auto& starter : starters_) starter->host_left(host);
    }
    assigner_->left(host);
    decide();
}

void Head::relay_lost(AgentSession& relay, const RelayLost& lost) {
    if (hosts_.is_behind(relay, lost.host)) agent_lost(lost.host, lost.why);
}

void Head::agent_lost(HostId host, const std::string& why) {
    HostState& state = hosts_[host];
    state.session = nullptr;
    if (state.refused) return agent_done(host, Done{});  // it may not have waited for its goodbye
    if (!state.done) lost(host, why);
}

void Head::agent_closed(AgentSession& agent, const Error& why) {
    assigner_->agent_went(agent.peer());
    sessions_.close(agent);
    if (!agent.host())
        return log::info("an agent at {} has not joined: {}", agent.peer_address(), why.message);
    agent_lost(*agent.host(), why.message + describe_pause(detector_.pause()));
    if (!hosts_.tree().is_relay(*agent.host())) return;
    for (const HostId host : hosts_.hosts())
        if (hosts_.is_behind(agent, host))
            agent_lost(host, fmt::format("{}, through which it was reached, is lost",
                                         hosts_.name(*agent.host())));
}

void Head::lost(HostId host, const std::string& why) {
    hosts_[host].done = true;
    record_.host_lost(host, why);
    stdin_.host_gone(host);
    inspector_.host_gone(host);
    output_.host_gone(host);
    assigner_->lost(host, why);
    for (const auto& starter : starters_) starter->host_lost(host);
    if (job_.ending()) log::warn("host {} lost: {}", hosts_.name(host), why);
    job_.host_lost(host, why);
    decide();
}

/// Says whose ranks keep the job from ending, as soon as that takes longer. A host whose ranks have ended waits for who
/// reads their output.
void Head::tell_ending() {
    if (!job_.ending() || job_.over()) return;
    std::vector<std::string> names;
    for (const HostId host : hosts_.hosts())
        if (hosts_[host].session != nullptr && !hosts_[host].done && job_.has_live_ranks(host))
            names.push_back(hosts_.name(host));
    const Deadline now = Clock::now();
    if (names.empty() || !ending_news_.look(now)) return;
    std::optional<std::chrono::milliseconds> left;
    if (killed_at_ > now)
        left = std::chrono::duration_cast<std::chrono::milliseconds>(killed_at_ - now);
    log::warn("waiting for ranks on {} to end{}", name_hosts(names), until_text(left, "--grace"));
}

/// The last resort: a host that does not answer the order to end its ranks is given up.
void Head::watch_answers() {
    for (const HostId host : stop_deadlines_.late(Clock::now())) {
        const HostState& state = hosts_[host];
        if (state.session == nullptr || state.done) continue;
        log::warn("{}: not all of its ranks have ended; given up", hosts_.name(host));
        const std::string why = "it was told to end its ranks, and has not";
        if (state.relayed)
            agent_lost(host, why);
        else
            give_up(*state.session, why);
    }
}

void Head::signalled(int signal) {
    const Bytes frame = encode(SignalRanks{signal});
    switch (signal) {
        case SIGUSR1:
        case SIGUSR2:
            // A rank that is being started gets it before it can have a handler, or not at all.
            if (!job_.all_run() && !job_.ending())
                log::warn("{} has come before all ranks run: others may miss it, or be ended by it",
                          signal_name(signal));
            return hosts_.send_to_all(frame);
        case SIGCONT:
            suspending_ = false;
            hosts_.send_to_all(frame);
            assigner_->signalled(signal);
            if (terminal_) terminal_->continued();
            return stdin_.resume();
        case SIGTSTP:
            hosts_.send_to_all(frame);
            assigner_->signalled(signal);
            if (!std::exchange(suspending_, true)) tasks_.spawn(stop_ourselves());
            return;
        case SIGINT:
            return interrupted();
        default:
            return end_by(signal);
    }
}

void Head::end_by(int signal) {
    if (signal != SIGPIPE) {
        asked_to_end_ = true;
        if (job_.over()) hurry_ = true;  // only output is left, and nobody reads it
        if (job_.interrupted()) tasks_.spawn(hurry_after(kImpatience));
        if (signal == SIGINT && !job_.ending())
            output_.message("dtrun: ending the job; Ctrl-C again kills it at once\n");
    }
    job_.interrupt(signal);
    decide();
    over_.cancel();
    output_.wake();
}

/// Stops this process, as the shell expects, once hosts have been told.
asio::awaitable<void> Head::stop_ourselves() {
    Timer timer(io_, kSuspendDelay);
    co_await timer.async_wait(use_tuple);
    if (std::exchange(suspending_, false)) suspend_();
}

/// Ends waiting after a second Ctrl-C: agents get `span` to kill their ranks, output gets no time.
asio::awaitable<void> Head::hurry_after(std::chrono::milliseconds span) {
    Timer timer(io_, span);
    co_await timer.async_wait(use_tuple);
    hurry();
}

void Head::hurry() {
    hurry_ = true;
    assigner_->hurry();
    over_.cancel();
    output_.wake();
}

boost::json::object Head::ended_view() const {
    boost::json::object view = record_.view({});
    for (auto& [name, value] : output_.outcome_json(job_.outcome())) view[name] = std::move(value);
    return view;
}

int Head::finish() {
    tell_notes();
    const report::JobOutcome& outcome = job_.outcome();
    job_.set_waiting(deadlocks_.describe(Clock::now()));
    const std::string report = output_.report_text(outcome);
    const int own = output_.report(outcome, report, hurry_ ? kHurriedWriteLimit : kWriteLimit);
    const int failed = exit_code(outcome);
    const int code = failed != 0 ? failed : own;
    record_.job_ended(code, report);
    inspector_.job_ended();
    return code;
}

}  // namespace dtrun::head
