#include "worker/agent/agent.h"

#include "base/build_id.h"
#include "base/freed_memory.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "base/process/soft_limits.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/login_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/probe.h"
#include "worker/ranks/store_elsewhere.h"

#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstring>
#include <set>

namespace dtrun::agent {
namespace {

constexpr std::chrono::seconds kGoodbyeLimit{5};  // for the head to close
constexpr std::chrono::milliseconds kAbortGrace{300};
/// Longest grace without a head, which alone could ask for more: less than the promised 5 s.
constexpr std::chrono::milliseconds kOrphanGraceMax{2'000};

/// Where ranks reach the head: as we do.
StorePort store_port(const Connection& head, std::uint16_t port, const StoreKey& key) {
    const auto secret = key.secret.bytes();
    return {remote_address(head.socket),
            port,
            {key.id.begin(), key.id.end()},
            {secret.begin(), secret.end()}};
}

}  // namespace

Agent::Agent(asio::io_context& io, AgentParts parts)
    : io_(io),
      parts_(std::move(parts)),
      lifeline_(io.get_executor(), std::move(parts_.lifeline)),
      runner_(parts_.make_runner([this](const Exited& exited) { rank_exited(exited); },
                                 [this](const std::string& text) { tell_user(text); })),
      rejoins_([this](const RejoinStatus& news) { tell_head(encode(news)); }),
      load_(parts_.load),
      signals_({io.get_executor(), !parts_.node.empty(),
                [this](int signal) { runner_->signal(signal); },
                [this](int signal) { runner_->signalled(signal); },
                [this](int signal) { tell_head(encode(SignalRanks{signal})); },
                [this](const std::string& why) { leave(why); }}),
      tasks_(io.get_executor()),
      look_ends_(io, Timer::time_point::max()),
      finished_(io, Timer::time_point::max()) {
    subscribe();
}

Agent::~Agent() = default;

asio::awaitable<int> Agent::run() {
    parts_.say(fmt::format("dtrun-agent {} {}", kProtocolVersion,
                           elf_build_id("/proc/self/exe").value_or("none")));
    auto told = co_await lifeline_.read_config(parts_.node);
    if (!told) {
        parts_.say("dtrun-agent-failed " + told.error().message);
        co_return 1;
    }
    config_ = std::move(*told);
    log::init("dtrun-agent " + config_.host_name, config_.verbosity);
    for (const ForwardedRlimit& limit : config_.limits)
        set_forwarded_rlimit(limit.name, limit.value);
    preflight_ = check_host(config_, parts_.host_env);
    find_package();
    if (config_.others_go_on) runner_->clear_places();
    reserved_ports_ = parts_.reserve_ports(config_.reserve_ports);
    reserved_ports_.listen_on_first(io_.get_executor());

    const auto joined = co_await join_head();
    if (!joined) parts_.say("dtrun-agent-failed " + joined.error().message);
    if (joined) {
        tasks_.spawn(serve_head());
        tasks_.spawn(detector_->run([this] { return beat(); }));
        while (!ending_.done) co_await finished_.async_wait(use_tuple);
        co_await say_goodbye();
    }
    co_await shut_down();
    co_return joined ? 0 : 1;
}

/// Flushes, then waits until the head closes: our close with bytes of the head unread would make
/// TCP discard what the head has not read yet.
asio::awaitable<void> Agent::say_goodbye() {
    if (ending_.leaving) co_return;
    co_await link_->flush();
    link_->shut_down_sending();
    DeadlineGuard guard(finished_, after(kGoodbyeLimit));
    if (!ending_.leaving) co_await finished_.async_wait(use_tuple);
}

asio::awaitable<void> Agent::shut_down() {
    if (streams_) streams_->close();
    for (const auto& service : services_) service->stop();
    if (onward_logins_) onward_logins_->stop();
    if (debugger_proxy_) debugger_proxy_->stop();
    if (elastic_clients_) elastic_clients_->stop();
    if (connections_) connections_->stop();
    tasks_.stop();
    if (link_) link_->close();
    for (const auto& service : services_) co_await service->join();
    if (onward_logins_) co_await onward_logins_->join();
    if (debugger_proxy_) co_await debugger_proxy_->join();
    if (elastic_clients_) co_await elastic_clients_->join();
    if (connections_) co_await connections_->join();
    co_await signals_.join();
    co_await tasks_.join();
}

asio::awaitable<Result<Connection>> Agent::connect(const Credentials& credentials) {
    const Deadline deadline = after(config_.connect_timeout);
    auto connection =
        co_await parts_.connect(config_.addresses, config_.port, credentials, deadline);
    co_return connection;
}

asio::awaitable<Result<void>> Agent::join_head() {
    JobId job{};
    std::copy_n(config_.job_id.begin(), job.size(), job.begin());
    const Secret secret(std::span<const std::uint8_t, Secret::kBytes>(
        reinterpret_cast<const std::uint8_t*>(config_.secret.data()), Secret::kBytes));
    ::explicit_bzero(config_.secret.data(), config_.secret.size());
    const Credentials credentials{job, secret, config_.encrypt};
    auto connection = co_await connect(credentials);
    if (!connection)  // in the words of dtrun's machine, where it is shown
        co_return fail(connection.error(), "the agent cannot reach this machine");

    if (config_.store_by_tcp > 0)
        store_port_ = store_port(*connection, config_.port, store_key_of(secret));
    Join join = describe_host(*connection);
    interface_ = join.interface;
    learn_facts(job);
    link_ = std::make_unique<Link>(std::move(*connection));
    detector_ = std::make_unique<FailureDetector>(io_.get_executor(), config_.heartbeat_timeout);
    if (auto opened = open_for_ranks(credentials, join); !opened) co_return opened;
    open_onward_logins(credentials);
    if (auto opened = open_debug_door(); !opened) co_return opened;
    streams_ = std::make_unique<RankStreams>(io_.get_executor(), *link_, router_,
                                             config_.output_window_bytes, [this] {
                                                 say_paused();
                                                 finish_if_done();
                                             });
    tasks_.spawn(link_->run_writer());
    tasks_.spawn(watch_lifeline());
    parts_.connected();
    co_await check_health();
    co_await check_debugger();
    co_await prepare_services(join);
    // What told us to end may have come first.
    if (!ending_.leaving) link_->send(encode(join));
    joined_ = true;
    for (Bytes& frame : std::exchange(early_, {})) tell_head(std::move(frame));
    if (!package_problem_.empty()) tell_user(package_problem_);
    if (!ending_.leaving) keep_ready();
    co_return Result<void>{};
}

Join Agent::describe_host(const Connection& connection) const {
    Join join;
    join.host = config_.host;
    join.hostname = host_name();
    join.agent_pid = ::getpid();
    join.address = local_address(connection.socket);
    join.addresses.push_back(join.address);
    std::set<std::string> own;
    for (const InterfaceAddress& address : interface_addresses()) {
        own.insert(address.address);
        if (address.address == join.address)
            join.interface = address.interface;
        else if (!address.loopback)
            join.addresses.push_back(address.address);
    }
    join.free_port = reserved_ports_.first();
    join.directory = preflight_.directory;
    join.machine = parts_.machine;
    // Copies of a virtual machine that runs have all of that in common, but not their addresses.
    if (!join.machine.empty())
        for (const std::string& address : own) join.machine += " " + address;
    return join;
}

void Agent::learn_facts(const JobId& job) {
    facts_.job = hex(job);
    facts_.agent = config_.agent;
    offer_store_program();
    facts_.host_name = config_.host_name;
    facts_.contracts = config_.contracts;
    facts_.nodelist = config_.nodelist;
    facts_.tasks_per_node = config_.tasks_per_node;
    static_cast<TorchSettings&>(facts_) = config_;
    facts_.encrypt = config_.encrypt;
    facts_.ranks_min = config_.ranks_min;
    facts_.ranks_max = config_.ranks_max;
}

/// For everybody who connects to us: ranks, agents behind us, and frameworks.
Result<void> Agent::open_for_ranks(const Credentials& credentials, Join& join) {
    connections_ = std::make_unique<Connections>(io_.get_executor(), *link_, router_, for_ranks(),
                                                 [this] { finish_if_done(); });
    elastic_clients_ = std::make_unique<ElasticClients>(ElasticClients::Parts{
        .executor = io_.get_executor(),
        .connections = *connections_,
        .rejoins = rejoins_,
        .host_name = facts_.host_name,
        .describe = [this](const RankSlot& slot,
                           const Assign& world) { return describe_place(slot, world); },
        .hangs = [this](Rank rank, const std::string& why) { rank_hangs(rank, why); },
    });
    if (is_elastic())
        if (auto opened = elastic_clients_->open(); !opened) return opened;
    auto rank_socket = connections_->open_for_ranks();
    if (!rank_socket) return std::unexpected(rank_socket.error());
    facts_.rank_socket = std::move(*rank_socket);
    services_ = parts_.make_services({
        .executor = io_.get_executor(),
        .config = config_,
        .facts = facts_,
        .user = preflight_.env,
        .connections = *connections_,
        .reserved_ports = reserved_ports_,
        .runner = *runner_,
        .tell_head = [this](const MpiStatus& news) { tell_head(encode(news)); },
        .rejoins = rejoins_,
        .aborted = [this](Rank rank) { tasks_.spawn(end_aborted(assign_.generation, rank)); },
    });
    for (const auto& service : services_)
        if (auto opened = service->open(facts_); !opened) return opened;
    if (!config_.relay) return {};
    // Who names the interfaces to be used wants no other to be listened on.
    std::vector<std::string> addresses;
    if (!config_.network_interfaces.empty()) addresses.push_back(join.address);
    const auto port = connections_->open_for_agents(credentials, addresses);
    if (!port) return std::unexpected(port.error());
    join.relay_port = *port;
    return {};
}

void Agent::open_onward_logins(const Credentials& credentials) {
    if (!config_.relay || !parts_.start_login) return;
    onward_logins_ = std::make_unique<OnwardLogins>(
        OnwardLogins::Parts{io_.get_executor(), credentials.secret, parts_.start_login,
                            [this](const LoginStream& said) {
                                if (!ending_.leaving) link_->send(encode(said));
                            }});
}

/// Asks the user's own command whether this host can be used.
asio::awaitable<void> Agent::check_health() {
    const bool is_asked = !config_.health_check.empty() && parts_.check_health;
    if (!is_asked || preflight_.problem != HostProblem::none) co_return;
    ranks::RankCommand command{.path = "/bin/sh",
                               .argv = {"sh", "-c", config_.health_check},
                               .env = environment_of_checks(),
                               .directory = preflight_.directory};
    const auto healthy = co_await parts_.check_health(std::move(command));
    if (healthy) co_return;
    preflight_.problem = HostProblem::unhealthy;
    preflight_.problem_text = healthy.error().message;
}

/// Of commands that run before any rank does. What they leave behind is found by it.
std::vector<std::string> Agent::environment_of_checks() const {
    contracts::Environment env = preflight_.env;
    env["DTRUN_JOB"] = facts_.job;
    env["DTRUN_AGENT"] = std::to_string(facts_.agent);
    env["DTRUN_HOST"] = facts_.host_name;
    std::vector<std::string> words;
    for (const auto& [name, value] : env) words.push_back(name + "=" + value);
    return words;
}

asio::awaitable<void> Agent::prepare_services(Join& join) {
    std::vector<std::string> programs{preflight_.program};
    for (const ProgramHere& program : preflight_.programs) programs.push_back(program.path);
    std::erase(programs, "");
    for (const std::string& program : programs) {
        if (preflight_.problem != HostProblem::none) break;
        for (const auto& service : services_) {
            const auto prepared = co_await service->prepare(program);
            if (prepared) continue;
            preflight_.problem = service->problem();
            preflight_.problem_text = prepared.error().message;
        }
    }
    join.problem = preflight_.problem;
    join.problem_text = preflight_.problem_text;
}

Connections::ForRanks Agent::for_ranks() {
    return {
        .greet = [this](PeerId peer, const Hello& hello) { return welcome(peer, hello); },
        .left = [this](PeerId peer) { elastic_clients_->left(peer); },
    };
}

/// The place of a rank of this host, or of a helper of one. A process of an elastic job may have had
/// another rank at its start.
Result<std::optional<Welcome>> Agent::welcome(PeerId peer, const Hello& hello) {
    elastic_clients_->give_board(peer, hello);
    if (const auto place = rejoins_.started_as(hello.generation, hello.rank))
        return elastic_clients_->hello(peer, *place, hello);
    const auto welcome = welcome_here(hello);
    if (!welcome) return std::unexpected(welcome.error());
    return *welcome;
}

Result<Welcome> Agent::welcome_here(const Hello& hello) const {
    if (assign_.generation == 0) return fail(Errc::denied, "no rank has been started yet");
    if (hello.generation != 0 && hello.generation != assign_.generation)
        return fail(Errc::denied, "generation {} is over, this is {}", hello.generation,
                    assign_.generation);
    if (hello.rank == kNoRank) return describe_place({.rank = kNoRank}, assign_);
    const auto slot = std::ranges::find(assign_.ranks, hello.rank, &RankSlot::rank);
    if (slot == assign_.ranks.end())
        return fail(Errc::denied, "rank {} is not on this host", hello.rank);
    return describe_place(*slot, assign_);
}

Welcome Agent::describe_place(const RankSlot& slot, const Assign& world) const {
    Welcome welcome;
    welcome.job = facts_.job;
    welcome.generation = world.generation;
    welcome.world_size = world.world_size;
    welcome.local_size = static_cast<std::uint32_t>(world.ranks.size());
    welcome.node_rank = world.node_rank;
    welcome.node_count = world.node_count;
    welcome.host_name = facts_.host_name;
    welcome.rank = slot.rank;
    welcome.local_rank = slot.local_rank;
    welcome.cross_rank = slot.cross_rank;
    welcome.cross_size = slot.cross_size;
    welcome.store_socket = config_.store_socket;
    if (slot.rank != kNoRank && slot.local_rank < config_.store_by_tcp)
        welcome.store_port = store_port_;
    welcome.stalls = true;
    return welcome;
}

/// A head on this machine is lost by its end alone, and hears of us when it asks. What ranks wait for is looked at
/// nevertheless as often as elsewhere.
Pace Agent::beat() {
    const bool is_asked = std::exchange(is_asked_, false);
    const bool watches_head = !config_.head_is_here;
    if (watches_head) load_.sample(Clock::now());
    if (is_asked || watches_head) say_alive();
    const bool is_any_late =
        connections_->beat(*detector_) || (watches_head && detector_->is_late(*link_));
    look_for_nested();
    say_who_waits(WaitReport::kWorthTelling, nested_watch_.waits(Clock::now()));
    if (watches_head && !ending_.head_stopped) {
        const auto silence = detector_->lost_with_machine(*link_);
        if (silence) leave(fmt::format("dtrun was {}", describe_silence(*silence)));
    }
    if (is_any_late) return Pace::alert;
    if (!start_ && std::exchange(was_busy_, false)) give_freed_memory_back();
    detector_->rest(connections_->agents());
    return Pace::calm;
}

/// Programs that start ranks of their own, and do not meet.
void Agent::look_for_nested() {
    const Deadline now = Clock::now();
    if (!parts_.look_for_nested || ending_.ending || assign_.world_size < 2 ||
        !nested_watch_.is_due(now))
        return;
    ranks::Nested nested = parts_.look_for_nested(runner_->running_ranks());
    nested_watch_.found(nested.waits, now);
    if (!nested.note.empty() && !std::exchange(said_nested_, true)) tell_user(nested.note);
}

/// Sends a heartbeat, which says "busy" also while ranks start: new ranks take all processors, and
/// go on to do so for long.
void Agent::say_alive() {
    connections_->say_alive(start_ || load_.is_high(Clock::now()));
}

/// What was said when the ranks were to end stays: who is being ended waits for nothing any more.
/// \param waits  that no service knows of
void Agent::say_who_waits(std::chrono::milliseconds at_least, std::vector<RankWait> waits) {
    if (ending_.ending) return;
    elastic_clients_->add_waits(waits);
    for (const auto& service : services_) service->add_waits(waits);
    if (const auto said = wait_report_.request(std::move(waits), at_least))
        link_->send(encode(*said));
}

void Agent::rank_exited(const Exited& ended) {
    Exited exited = ended;
    rejoins_.ended(exited.place);
    for (const auto& service : services_) service->ended(exited);
    if (!link_) return;
    if (debugger_proxy_ && config_.is_debugged(exited.rank)) debugger_proxy_->hang_up();
    streams_->rank_ended(exited.place);
    // What the rank last told its MPI server may still be unread at this moment.
    ++ending_.unreported;
    asio::post(io_, [this, exited]() mutable {
        for (const auto& service : services_) service->describe(exited);
        // A scheduler's signal may have come to the rank first.
        if (exited.sent_signal == 0 && signals_.is_unclear(exited.signal))
            tasks_.spawn(report_later(exited));
        else
            report(exited);
    });
}

asio::awaitable<void> Agent::report_later(Exited exited) {
    Timer timer(io_, AgentSignals::kSpread);
    co_await timer.async_wait(use_tuple);
    if (signals_.is_recent(exited.signal)) exited.sent_signal = exited.signal;
    report(exited);
}

void Agent::report(const Exited& exited) {
    processes_.erase(exited.place);
    tell_end(exited, "has ended");
    streams_->hurry();
    --ending_.unreported;
    say_paused();
    finish_if_done();
}

/// Reports a rank's end to the head, and fails the fences at which others wait for it in vain.
void Agent::tell_end(const Exited& exited, std::string_view how) {
    link_->send(encode(exited));
    connections_->relay().fail_fences(
        fmt::format("rank {} on {} {}", exited.rank, config_.host_name, how));
}

void Agent::rank_hangs(Rank rank, const std::string& why) {
    tasks_.spawn(tell_hang(rank, why));
}

/// For whoever may have something to say at any time: the head hears nobody who has not joined.
void Agent::tell_head(Bytes frame) {
    if (!joined_)
        early_.push_back(std::move(frame));
    else if (!ending_.leaving)
        link_->send(std::move(frame));
}

/// Sends a frame, which the head shows at once; standard error is shown only with the host's end.
void Agent::tell_user(const std::string& text) {
    MpiStatus news;
    news.generation = assign_.generation;
    news.note = fmt::format("{}: {}", config_.host_name, text);
    tell_head(encode(news));
}

/// Kills a rank that has called MPI_Abort; before that it may print for a moment.
asio::awaitable<void> Agent::end_aborted(std::uint64_t generation, Rank rank) {
    Timer timer(io_, kAbortGrace);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (!error) runner_->kill(generation, rank);
}

asio::awaitable<void> Agent::watch_lifeline() {
    const bool broken = co_await lifeline_.broken();
    if (broken) leave("the lifeline to dtrun broke");
}

asio::awaitable<void> Agent::serve_head() {
    const std::function<Result<void>(const FrameView&)> handle = [this](const FrameView& frame) {
        return this->handle(frame);
    };
    const auto served = co_await link_->serve(handle);
    const Error& why = served.error();
    if (why.code == Errc::denied) parts_.say("dtrun-agent-failed " + why.message);
    if (why.code != Errc::cancelled) leave(why.message);
}

void Agent::subscribe() {
    router_.on<Assign>(this, &Agent::begin);
    router_.on<Pause>(this, &Agent::pause);
    router_.on<Stop>(this, &Agent::stop);
    router_.on<ResetConnections>(this, &Agent::lose);
    router_.on<Notify>(this, &Agent::notify);
    router_.on<Prepare>(this, &Agent::prepare);
    router_.on<EndRanks>(this, &Agent::end_processes);
    router_.on<Probe>(
        [this](Probe probe) { tasks_.spawn(answer_probe(std::move(probe), ++probes_)); });
    router_.on<QueryCommit>([this](const QueryCommit& query_commit) {
        link_->send(encode(ReadyToCommit{query_commit.number}));
    });
    router_.on<Heard>(this, &Agent::daemon_is_there);
    router_.on<SignalRanks>([this](const SignalRanks& order) { runner_->signal(order.signal); });
    router_.on<StackRequest>(
        [this](const StackRequest& request) { tasks_.spawn(answer_stacks(request)); });
    router_.on<UsageRequest>(
        [this](const UsageRequest& measure) { tasks_.spawn(answer_usage(measure.number)); });
    router_.on<Resize>([this](const Resize& resize) {
        config_.terminal_size = resize.size;
        streams_->resize(resize.size);
    });
    router_.on<Tunnel>([this](const Tunnel& tunnel) {
        if (debugger_proxy_) debugger_proxy_->take(tunnel);
    });
    router_.on<LoginStream>([this](const LoginStream& said) {
        return onward_logins_ ? onward_logins_->take(said) : Result<void>{};
    });
    router_.on<Refuse>([](const Refuse& refuse) -> Result<void> {
        return fail(Errc::denied, "dtrun refuses this host: {}", refuse.reason);
    });
}

/// What is for ranks waits until they run. A heartbeat is answered by one.
Result<void> Agent::handle(const FrameView& frame) {
    if (frame.type == FrameType::signal)
        if (const auto signal = decode<SignalRanks>(frame.payload)) head_signalled(signal->signal);
    if (frame.type == FrameType::heartbeat) {
        is_asked_ = true;
        detector_->follow();
    }
    const bool for_ranks = frame.type == FrameType::input || frame.type == FrameType::signal;
    if (!start_ || !for_ranks) return router_.route(frame);
    start_->deferred.emplace_back(frame.type, frame.payload);
    return {};
}

/// Ctrl-Z stops the head after the ranks. A stopped head is silent but not lost: should it end, its
/// kernel closes the connection.
void Agent::head_signalled(int signal) {
    if (signal != SIGTSTP && signal != SIGCONT) return;
    ending_.head_stopped = signal == SIGTSTP;
    link_->set_peer_stopped(ending_.head_stopped);
}

Result<void> Agent::begin(Assign assign) {
    if (ending_.leaving || ending_.orphans) return {};
    if (preflight_.problem != HostProblem::none)
        return fail(Errc::invalid_input, "told to start what cannot be started");
    if (auto named = name_nodes(assign); !named) return named;
    choose_interface(assign);
    const std::vector<RankSlot> fresh = take_over(assign);
    const bool goes_on = fresh.size() < assign.ranks.size();
    for (const auto& service : services_)
        if (auto begun = goes_on ? service->go_on(assign) : service->begin(assign); !begun)
            return begun;
    reserved_ports_.release();
    wait_report_.begin(assign.generation);
    connections_->relay().begin(assign.generation, assign.ranks_below);
    assign_ = std::move(assign);
    elastic_clients_->begin(assign_);
    rejoins_.begin(assign_);
    start_ = Start{assign_.generation, fresh.size(), {assign_.generation, {}}};
    for (const ranks::RunningRank& rank : runner_->running_ranks()) {
        const auto is_there = [&rank](const std::vector<RankSlot>& slots) {
            return std::ranges::find(slots, rank.place, &RankSlot::place) != slots.end();
        };
        if (is_there(assign_.ranks) && !is_there(fresh))  // it goes on in this world
            start_->started.ranks.push_back(
                {.rank = rank.rank, .place = rank.place, .pid = rank.pid});
    }
    was_busy_ = true;
    say_alive();
    tasks_.spawn(start_when_ready(fresh));
    return {};
}

/// Reports the pause once all output of the ranks was sent: the next ranks have other numbers.
void Agent::say_paused() {
    if (!ending_.pausing || ending_.unreported > 0 || !streams_->all_ended()) return;
    const Paused paused{*std::exchange(ending_.pausing, std::nullopt)};
    link_->send(encode(paused));
}

void Agent::stop(const Stop& stop) {
    say_who_waits(std::chrono::milliseconds(0), ranks::waits_elsewhere(runner_->running_ranks()));
    connections_->relay().announce(
        {RankEvent::Kind::shutdown, assign_.generation, stop.grace_ms, stop.why});
    if (stop.by_scheduler && !signals_.everybody_got(stop.signal))
        tasks_.spawn(stop_after(stop));
    else
        end_job(stop.signal, std::chrono::milliseconds(stop.grace_ms));
}

/// Waits a moment before ending the job: another host was faster to report a scheduler's signal,
/// which may be on its way to the ranks here and must not reach them twice.
asio::awaitable<void> Agent::stop_after(Stop stop) {
    Timer timer(io_, AgentSignals::kSpread);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (error || ending_.orphans || ending_.leaving) co_return;  // it has ended meanwhile
    end_job(stop.signal, std::chrono::milliseconds(stop.grace_ms));
}

/// Answers only the latest probe: the head does not ask for older ones any more.
asio::awaitable<void> Agent::answer_probe(Probe probe, unsigned number) {
    const Reached reached = co_await try_addresses(std::move(probe));
    if (number == probes_) link_->send(encode(reached));
}

void Agent::leave(std::string_view why) {
    if (std::exchange(ending_.leaving, true)) return;
    finished_.cancel();
    if (ending_.done) return;
    log::warn("{}: ending the ranks", why);
    end_job(SIGTERM, std::min(config_.grace, kOrphanGraceMax));
}

void Agent::end_job(int signal, std::chrono::milliseconds grace) {
    ending_.pausing.reset();
    ending_.ending = true;
    forget_start();
    runner_->retire();
    runner_->stop_all(signal, grace, [this](int orphans) {
        streams_->hurry();
        end_services([this, orphans] {
            ending_.orphans = std::max(ending_.orphans.value_or(0), orphans);
            finish_if_done();
        });
    });
}

/// No rank of the generation runs any more. \param gone  called when every service is through with it
void Agent::end_services(std::function<void()> gone) {
    const auto left = std::make_shared<std::size_t>(services_.size());
    if (*left == 0) return gone();
    for (const auto& service : services_)
        service->end([left, gone] {
            if (--*left == 0) gone();
        });
}

/// Finishes once no process is left: every pipe then has its end, which the pump sees when the head
/// grants credit. Agents behind this one need it until they are done.
void Agent::finish_if_done() {
    if (ending_.done || !ending_.orphans || ending_.unreported > 0 ||
        (!ending_.leaving && (!streams_->all_ended() || connections_->agents() > 0)))
        return;
    ending_.done = true;
    const auto orphans = static_cast<std::uint32_t>(*ending_.orphans + ending_.orphans_before);
    if (!ending_.leaving) link_->send(encode(Done{orphans}));
    finished_.cancel();
}

}  // namespace dtrun::agent
