#include "launcher/head/head.h"

#include "base/log.h"
#include "base/strings.h"
#include "launcher/head/report.h"
#include "launcher/head/torch_error.h"
#include "launcher/output/output_layout.h"
#include "launcher/plan/exit_code.h"
#include "rendezvous/relayed.h"

#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

/// From the second Ctrl-C to the end, whoever does not answer or read by then.
constexpr std::chrono::milliseconds kImpatience{1'500};
/// From Ctrl-Z until we stop: for the news of it to leave.
constexpr std::chrono::milliseconds kSuspendDelay{50};
constexpr std::uint64_t kDescriptorsOfHost = 6;
constexpr std::uint64_t kDescriptors = 600;  // all others

/// A host is the member whose id is its index and one.
MembershipOptions membership_options(const plan::JobSpec& spec) {
    const Placement& placement = spec.placement;
    MembershipOptions options;
    options.describe_nodes = contracts::needs_nodes(spec.contracts);
    options.ranks_min = options.ranks_max = static_cast<std::uint32_t>(placement.world_size());
    options.plan.resize(placement.hosts.size());
    for (const RankPlace& place : placement.ranks) {
        RankSlot slot;
        slot.rank = static_cast<std::uint32_t>(place.rank);
        slot.local_rank = static_cast<std::uint32_t>(place.local_rank);
        slot.cross_rank = static_cast<std::uint32_t>(place.cross_rank);
        slot.cross_size = static_cast<std::uint32_t>(place.cross_size);
        slot.slot = static_cast<std::uint32_t>(place.slot);
        options.plan[static_cast<std::size_t>(place.host)].push_back(slot);
    }
    return options;
}

JobOptions job_options(const plan::Options& asked) {
    JobOptions options;
    options.keep_going = asked.keep_going;
    options.grace = asked.grace;
    options.max_restarts = asked.join ? 0 : asked.max_restarts;  // a daemon's are its own
    return options;
}

std::vector<std::uint32_t> ranks_on_host(const plan::JobSpec& spec) {
    std::vector<std::uint32_t> counts;
    for (const plan::JobHost& host : spec.hosts)
        counts.push_back(static_cast<std::uint32_t>(host.ranks.size()));
    return counts;
}

std::vector<std::string> host_names(const plan::JobSpec& spec) {
    std::vector<std::string> names;
    for (const plan::JobHost& host : spec.hosts) names.push_back(host.host.name);
    return names;
}

bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Head::Head(asio::io_context& io, const plan::JobSpec& spec)
    : io_(io),
      spec_(spec),
      tasks_(io.get_executor()),
      hosts_(spec.hosts.size()),
      tree_(static_cast<std::uint32_t>(spec.hosts.size()),
            static_cast<std::uint32_t>(spec.options.tree_threshold)),
      answers_(tree_, spec.hosts.size()),
      membership_(membership_options(spec)),
      pulse_(io.get_executor(), spec.options.heartbeat_timeout),
      job_(ranks_on_host(spec), job_options(spec.options)),
      waits_(
          static_cast<std::uint32_t>(spec.placement.world_size()),
          [&spec](std::uint32_t rank) { return spec.host_of(rank); }, spec.options.init_timeout),
      probed_(io, asio::steady_timer::time_point::max()),
      signals_(io),
      over_(io, asio::steady_timer::time_point::max()),
      output_idle_(io, asio::steady_timer::time_point::max()),
      login_slot_(io, asio::steady_timer::time_point::max()),
      relay_ready_(io, asio::steady_timer::time_point::max()),
      step_ended_(io, asio::steady_timer::time_point::max()) {
    if (spec.daemon) {
        relay_ = std::make_unique<Relay>(static_cast<Outbox&>(*this));
        relay_->set_resendable();
        exchange_ = relay_.get();
    } else {
        hub_ = std::make_unique<Hub>(static_cast<Outbox&>(*this), HubOptions{});
        hub_timer_ = std::make_unique<HubTimer>(io.get_executor(), *hub_);
        exchange_ = hub_.get();
    }
}

Head::~Head() = default;

Result<void> Head::prepare() {
    raise_descriptor_limit(kDescriptors + hosts_.size() * kDescriptorsOfHost);
    auto agent = transport::find_agent();
    if (!agent) return std::unexpected(agent.error());
    agent_file_ = std::move(*agent);

    std::vector<std::string> rank_hosts;
    for (const RankPlace& place : spec_.placement.ranks)
        rank_hosts.push_back(spec_.host_of(static_cast<std::uint32_t>(place.rank)));
    const auto wake = [this] { asio::post(io_, [this] { return_credits(); }); };
    auto options = output::output_options(spec_, hex(job_id_));
    if (!options) return std::unexpected(options.error());
    auto output = output::OutputMux::create(std::move(*options), rank_hosts, wake);
    if (!output) return fail(output.error(), "{}", output::files_flag(spec_.options.rank_output));
    output_ = std::move(*output);
    log::set_sink(
        [](void* mux, std::string_view line) {
            static_cast<output::OutputMux*>(mux)->message(line);
        },
        output_.get());
    progress_ = std::make_unique<output::Progress>(io_.get_executor(), *output_, host_names(spec_));

    std::vector<std::uint32_t> readers;
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
        const auto& ranks = spec_.hosts[host].ranks;
        const plan::StdinTarget& target = spec_.options.stdin_target;
        const bool one =
            std::ranges::find(ranks, static_cast<std::uint32_t>(target.rank)) != ranks.end();
        if (target.kind == plan::StdinTarget::Kind::all ||
            (target.kind == plan::StdinTarget::Kind::rank && one))
            readers.push_back(host);
    }
    stdin_ = std::make_unique<output::StdinPump>(
        io_.get_executor(), readers, [this](std::uint32_t host, std::string_view bytes) {
            send(host, encode(Input{std::string(bytes)}));
        });
    return listen();
}

asio::awaitable<int> Head::run() {
    const auto prepared = prepare();
    if (!prepared) {
        log::set_sink(nullptr, nullptr);
        log::error("{}", prepared.error().message);
        co_return prepared.error().code == Errc::invalid_input ? plan::kExitUsage
                                                               : plan::kExitInternal;
    }
    tasks_.spawn(watch_signals());
    tasks_.spawn(watch_start_timeout());
    tasks_.spawn(pulse_.run([this] { beat(); }));
    if (log::enabled(log::Level::normal)) progress_->start();
    tasks_.spawn(start_hosts());
    while (!(job_.over() && sweepers_ == 0) && !hurry_) co_await over_.async_wait(use_tuple);

    if (uplink_) co_await leave_daemon();
    progress_->finish();
    co_await end_steps();
    stdin_->stop();
    server_->stop();
    co_await drain_output();
    co_return finish();
}

/// Carries out what the state machine has decided.
void Head::step() {
    if (job_.take_start()) spec_.daemon ? join_daemon() : tasks_.spawn(meet());
    if (const auto because = job_.take_restart()) restart_ranks(*because);
    if (const auto order = job_.take_stop()) {
        starting_ = false;
        login_slot_.cancel();
        relay_ready_.cancel();
        probed_.cancel();
        progress_->finish();
        const auto grace =
            static_cast<std::uint32_t>(std::min<long long>(order->grace.count(), UINT32_MAX));
        // A signal that dtrun was sent may have been sent to every process of Slurm's job.
        const Outcome& outcome = job_.outcome();
        const bool by_scheduler = !steps_.empty() && outcome.cause == Outcome::Cause::interrupted &&
                                  outcome.signal == order->signal;
        send_to_all(encode(Stop{order->signal, grace, "", by_scheduler}));
        if (uplink_) tasks_.spawn(leave_daemon());
        answers_.stop(order->grace, Clock::now());
    }
    if (job_.over()) over_.cancel();
}

void Head::start_ranks() {
    starting_ = false;
    progress_->finish();
    for (const auto& [directory, hosts] : std::exchange(elsewhere_, {}))
        log::warn("{}: {} is not there, ranks run in {}", join_names(hosts), spec_.directory,
                  directory);
    started_at_ = Clock::now();
    hub_->begin(membership_.generation(), membership_.world_size());
    std::vector<std::uint32_t> ranks_below(hosts_.size());
    for (const auto& [member, assign] : assignments_) {
        const auto host = static_cast<std::uint32_t>(member - 1);
        const auto ranks = static_cast<std::uint32_t>(assign.ranks.size());
        ranks_below[host] += ranks;
        if (hosts_[host].relayed) ranks_below[*tree_.parent(host)] += ranks;
    }
    // Relays come first, and so know of the generation before those behind them.
    for (auto& [member, assign] : std::exchange(assignments_, {})) {
        const auto host = static_cast<std::uint32_t>(member - 1);
        assign.ranks_below = ranks_below[host];
        assign.master_address = master_address_;
        if (!assign.nodes.empty()) assign.nodes.front().address = master_address_;
        this->assign(host, assign);
    }
    stdin_->start();
}

void Head::assign(std::uint32_t host, const Assign& assign) {
    send(host, encode(assign));
}

/// Through its relay, if it has one; to nobody, if it has not joined or is done.
void Head::send(std::uint32_t host, Bytes frame) {
    const HostState& state = hosts_[host];
    if (state.session == nullptr || state.done) return;
    Link& link = state.session->link();
    if (!state.relayed) return link.send(std::move(frame));
    std::string_view bytes(frame);
    const auto view = next_frame(bytes);
    link.send_soon(FrameType::relayed, encode_relayed(host, (*view)->type, (*view)->payload));
}

void Head::send_to_all(const Bytes& frame) {
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) send(host, frame);
}

void Head::to_port(PortId port, FrameType type, std::string_view payload) {
    const auto session = ports_.find(port);
    if (session != ports_.end()) session->second->link().send_soon(type, payload);
}

void Head::share_with_port(PortId port, FrameType type, std::string_view payload,
                           const SharedBytes& rest) {
    const auto session = ports_.find(port);
    if (session != ports_.end()) session->second->link().send_soon(type, payload, rest);
}

void Head::to_root(FrameType type, std::string_view payload) {
    if (uplink_) uplink_->send(type, payload);  // else it is here
}

void Head::beat() {
    show_steps();
    watch_waits();
    watch_answers();
    const Bytes frame = encode(Heartbeat{});
    std::vector<std::pair<AgentSession*, std::chrono::milliseconds>> silent;
    for (const auto& [port, session] : ports_) {
        session->link().send(frame);
        if (!session->host()) continue;
        const auto silence = pulse_.lost(session->link());
        if (silence) silent.emplace_back(session, *silence);
    }
    for (const auto& [session, silence] : silent) give_up(*session, describe_silence(silence));
}

void Head::give_up(AgentSession& session, const std::string& why) {
    session.link().close();
    agent_closed(session, Error{Errc::timed_out, why});
}

void Head::agent_started(std::uint32_t host, const Started& started) {
    for (const RankPid& rank : started.ranks) hosts_[host].ranks[rank.pid] = rank.rank;
    for (const RankPid& rank : started.ranks)
        log::info("rank {} runs on {} as pid {}", rank.rank, spec_.hosts[host].host.name, rank.pid);
}

/// Agents speak for their own ranks only.
bool Head::runs_on(std::uint32_t rank, std::uint32_t host) const {
    const auto& ranks = spec_.placement.ranks;
    return rank < ranks.size() && static_cast<std::uint32_t>(ranks[rank].host) == host;
}

void Head::agent_exited(std::uint32_t host, const Exited& told) {
    if (!spec_.daemon && told.generation != membership_.generation()) return;
    Exited exited = told;
    exited.rank -= first_rank_;  // from here on ranks of this launcher are counted
    if (!runs_on(exited.rank, host)) return;
    log::info("rank {} ended: code {} signal {}", told.rank, exited.code, exited.signal);
    if (may_be_collateral(exited)) {
        tasks_.spawn(believe_later(host, std::move(exited)));
        return;
    }
    if (exited.sent_signal == 0) waits_.rank_ended(exited.rank, exited.pid, exited.mpi);
    job_.rank_exited(host, exited);
    if (auto left = waits_.left_mpi()) job_.left_mpi(std::move(*left));
    watch_waits();
    step();
}

void Head::agent_output(std::uint32_t host, const OutputView& output) {
    const std::uint32_t rank = output.header.rank - first_rank_;
    if (!runs_on(rank, host)) return;
    answers_.output(host).add(output.data.size());
    output_->add(static_cast<int>(rank), output.header.stream, output.header.time_ns, output.data);
}

void Head::agent_output_end(std::uint32_t host, const OutputEnd& end) {
    const std::uint32_t rank = end.rank - first_rank_;
    const bool known = end.stream == Stream::out || end.stream == Stream::err;
    if (known && runs_on(rank, host)) output_->finish(static_cast<int>(rank), end.stream);
}

void Head::agent_input_credit(std::uint32_t host, std::uint64_t bytes) {
    stdin_->credit(host, bytes);
}

void Head::agent_signalled(std::uint32_t host, int signal) {
    const char* name = ::sigabbrev_np(signal);
    if (job_.ending() || name == nullptr) return;
    log::warn("Slurm ends the job: its agent on {} got SIG{}", spec_.hosts[host].host.name, name);
    job_.end(signal);
    step();
}

void Head::agent_done(std::uint32_t host, const Done& done) {
    HostState& state = hosts_[host];
    if (state.done) return;
    state.done = true;
    stdin_->host_gone(host);
    AgentSession* session = std::exchange(state.session, nullptr);
    if (session != nullptr && !state.relayed) {
        exchange_->remove_port(session->port());
        ports_.erase(session->port());
        session->link().close();
    }
    job_.host_done(host, done.strays);
    step();
}

Result<void> Head::agent_exchanged(AgentSession& agent, const FrameView& frame) {
    const auto done = exchange_->from_port(agent.port(), frame, Clock::now());
    if (hub_timer_) hub_timer_->look();
    return done;
}

bool Head::is_behind(const AgentSession& agent, std::uint32_t host) const {
    return host < hosts_.size() && hosts_[host].relayed && hosts_[host].session == &agent;
}

void Head::agent_lost(std::uint32_t host, const std::string& why) {
    hosts_[host].session = nullptr;
    if (!hosts_[host].done) lost(host, why);
}

void Head::agent_closed(AgentSession& agent, const Error& why) {
    exchange_->remove_port(agent.port());
    ports_.erase(agent.port());
    if (!agent.host()) return;
    agent_lost(*agent.host(), why.message);
    for (std::uint32_t host = 0; host < hosts_.size(); ++host)
        if (is_behind(agent, host))
            agent_lost(host, fmt::format("{}, which relayed for it, is lost",
                                         spec_.hosts[*agent.host()].host.name));
}

void Head::lost(std::uint32_t host, const std::string& why) {
    hosts_[host].done = true;
    stdin_->host_gone(host);
    probed_.cancel();
    membership_.lost(host + 1, why, Clock::now());
    sweep_soon(host);
    if (job_.ending()) log::warn("host {} lost: {}", spec_.hosts[host].host.name, why);
    job_.host_lost(host, why);
    step();
}

/// The last resort: a host that does not answer the order to end its ranks is given up.
void Head::watch_answers() {
    for (const std::uint32_t host : answers_.late(Clock::now())) {
        const HostState& state = hosts_[host];
        if (state.session == nullptr || state.done) continue;
        log::warn("{}: not all of its ranks have ended; given up", spec_.hosts[host].host.name);
        const std::string why = "it was told to end its ranks, and has not";
        if (state.relayed)
            agent_lost(host, why);
        else
            give_up(*state.session, why);
    }
}

asio::awaitable<void> Head::watch_signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
        if (!is_ignored(signal)) signals_.add(signal);
    for (;;) {
        const auto [error, signal] = co_await signals_.async_wait(use_tuple);
        if (error) co_return;
        on_signal(signal);
    }
}

void Head::on_signal(int signal) {
    switch (signal) {
        case SIGUSR1:
        case SIGUSR2:
            return send_to_all(encode(SignalRanks{signal}));
        case SIGCONT:
            suspending_ = false;
            send_to_all(encode(SignalRanks{signal}));
            to_root(FrameType::signal, payload_of(encode(SignalRanks{signal})));
            return stdin_->resume();
        case SIGTSTP:
            send_to_all(encode(SignalRanks{signal}));
            to_root(FrameType::signal, payload_of(encode(SignalRanks{signal})));
            if (!std::exchange(suspending_, true)) tasks_.spawn(stop_ourselves());
            return;
        default:
            break;
    }
    if (job_.over()) hurry_ = true;  // only output is left, and nobody reads it
    if (job_.interrupted()) tasks_.spawn(hurry_after(kImpatience));
    if (signal == SIGINT && !job_.ending())
        output_->message("dtrun: ending the job; Ctrl-C again kills it at once\n");
    job_.interrupt(signal);
    step();
    over_.cancel();
    output_idle_.cancel();
}

/// As the shell expects, once everybody has been told.
asio::awaitable<void> Head::stop_ourselves() {
    asio::steady_timer timer(io_, kSuspendDelay);
    co_await timer.async_wait(use_tuple);
    if (std::exchange(suspending_, false)) ::raise(SIGSTOP);
}

/// The user wants it over: agents get a moment to kill what they have, output none.
asio::awaitable<void> Head::hurry_after(std::chrono::milliseconds span) {
    asio::steady_timer timer(io_, span);
    co_await timer.async_wait(use_tuple);
    hurry_ = true;
    if (uplink_) uplink_->stop_waiting();
    over_.cancel();
    output_idle_.cancel();
}

/// Bytes that have left here may be sent again there.
void Head::return_credits() {
    if (!output_) return;  // it could not be made
    for (const output::OutputCredit& credit : output_->collect()) {
        const auto rank = static_cast<std::size_t>(credit.rank);
        const auto host = static_cast<std::uint32_t>(spec_.placement.ranks[rank].host);
        answers_.output(host).left(credit.bytes, Clock::now());
    }
    for (std::uint32_t host = 0; host < hosts_.size(); ++host)
        if (const auto bytes = answers_.output(host).take_credit())
            send(host, encode(Credit{bytes}));
    for (Error& failure : output_->take_failures()) output_failed(std::move(failure));
    if (output_->idle()) output_idle_.cancel();
}

/// Like a program whose reader has gone, the job ends; a file that cannot be written is no reason to
/// lose the job, but is reported and makes it fail.
void Head::output_failed(Error failure) {
    if (failure.code == Errc::closed) {
        job_.interrupt(SIGPIPE);
        step();
    } else if (exit_code_ == 0) {
        exit_code_ = plan::kExitInternal;
    }
    failures_.push_back(std::move(failure.message));
}

asio::awaitable<void> Head::drain_output() {
    // Lines without an end, of hosts that were lost.
    for (const RankPlace& place : spec_.placement.ranks)
        for (const Stream stream : {Stream::out, Stream::err}) output_->finish(place.rank, stream);
    while (!output_->idle() && !hurry_) co_await output_idle_.async_wait(use_tuple);
}

int Head::finish() {
    const Outcome& outcome = job_.outcome();
    const auto tail = [this](std::uint32_t rank) { return output_->tail(static_cast<int>(rank)); };
    job_.set_waiting(waits_.describe());
    return_credits();
    for (const std::string& failure : failures_) output_->message("dtrun: " + failure + "\n");
    output_->message(failure_report(outcome, spec_, tail));
    const std::string& error_file = spec_.options.error_file;
    if (outcome.first && !error_file.empty())
        if (const auto left = leave_torch_error(error_file, *outcome.first); !left)
            output_->message("dtrun: " + left.error().message + "\n");
    log::set_sink(nullptr, nullptr);
    output_->stop(
        after(hurry_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(2'000)));
    for (const Error& abandoned : output_->take_failures()) log::error("{}", abandoned.message);
    const int code = exit_code(outcome);
    return code != 0 ? code : exit_code_;
}

}  // namespace dtrun::head
