#include "worker/agent/agent.h"

#include "base/build_id.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/probe.h"
#include "worker/agent/visible_devices.h"
#include "worker/ranks/left_behind.h"
#include "worker/ranks/rank_macros.h"

#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstring>

namespace dtrun::agent {
namespace {

constexpr std::chrono::seconds kGoodbyeLimit{5};  // for the head to close
constexpr std::chrono::milliseconds kAbortGrace{300};
constexpr std::chrono::milliseconds kSeverAgain[] = {
    std::chrono::milliseconds(0), std::chrono::milliseconds(50), std::chrono::milliseconds(450)};
/// Pipes and connections to ours of the rank itself, of torch's and Horovod's stores and of MPI, and of
/// processes that the rank starts.
constexpr std::uint64_t kDescriptorsOfRank = 16;
constexpr std::uint64_t kDescriptors = 600;  // all others
/// Longest grace without a head, which alone could ask for more: less than the promised 5 s.
constexpr std::chrono::milliseconds kOrphanGraceMax{2'000};

/// As clocks outside of this process have it.
std::uint64_t unix_ms_after(std::uint32_t wait_ms) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now).count() + wait_ms);
}

}  // namespace

Agent::Agent(asio::io_context& io, AgentParts parts)
    : io_(io),
      parts_(std::move(parts)),
      lifeline_(io.get_executor(), std::move(parts_.lifeline)),
      runner_(parts_.make_runner([this](const Exited& exited) { rank_exited(exited); },
                                 [this](const std::string& text) { tell_user(text); })),
      desk_([this](const DeskNews& news) { link_->send(encode(news)); }),
      load_(parts_.load),
      signals_({io.get_executor(), !parts_.node.empty(),
                [this](int signal) { runner_->signal(signal); },
                [this](int signal) { runner_->signalled(signal); },
                [this](int signal) { link_->send(encode(SignalRanks{signal})); },
                [this](const std::string& why) { leave(why); }}),
      tasks_(io.get_executor()),
      finished_(io, Timer::time_point::max()) {}

Agent::~Agent() = default;

asio::awaitable<int> Agent::run() {
    parts_.say(fmt::format("dtrun-agent {} {}", kProtocolVersion,
                           elf_build_id("/proc/self/exe").value_or("none")));
    auto told = co_await lifeline_.read_bootstrap(parts_.node);
    if (!told) {
        parts_.say("dtrun-agent-failed " + told.error().message);
        co_return 1;
    }
    bootstrap_ = std::move(*told);
    log::init("dtrun-agent " + bootstrap_.host_name, static_cast<log::Level>(bootstrap_.log_level));
    preflight_ = check_host(bootstrap_, parts_.host_env);
    reserved_ports_ = parts_.reserve_ports(bootstrap_.reserve_ports);
    reserved_ports_.listen_on_first(io_.get_executor());

    const auto joined = co_await join_head();
    if (!joined) parts_.say("dtrun-agent-failed " + joined.error().message);
    if (joined) {
        tasks_.spawn(serve_head());
        tasks_.spawn(pulse_->run([this] { beat(); }));
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
    if (living_) living_->stop();
    if (connections_) connections_->stop();
    tasks_.stop();
    if (link_) link_->close();
    for (const auto& service : services_) co_await service->join();
    if (living_) co_await living_->join();
    if (connections_) co_await connections_->join();
    co_await signals_.join();
    co_await tasks_.join();
}

asio::awaitable<Result<Connection>> Agent::connect(const Credentials& credentials) {
    const Deadline deadline = after(std::chrono::milliseconds(bootstrap_.connect_timeout_ms));
    auto connection =
        co_await parts_.connect(bootstrap_.addresses, bootstrap_.port, credentials, deadline);
    co_return connection;
}

asio::awaitable<Result<void>> Agent::join_head() {
    JobId job{};
    std::copy_n(bootstrap_.job_id.begin(), job.size(), job.begin());
    const Secret secret(std::span<const std::uint8_t, Secret::kBytes>(
        reinterpret_cast<const std::uint8_t*>(bootstrap_.secret.data()), Secret::kBytes));
    ::explicit_bzero(bootstrap_.secret.data(), bootstrap_.secret.size());
    const Credentials credentials{job, secret, bootstrap_.encrypt};
    auto connection = co_await connect(credentials);
    if (!connection) co_return std::unexpected(connection.error());

    Join join = describe_host(*connection);
    interface_ = join.interface;
    learn_facts(job);
    link_ = std::make_unique<Link>(std::move(*connection));
    pulse_ = std::make_unique<Pulse>(io_.get_executor(),
                                     std::chrono::milliseconds(bootstrap_.heartbeat_timeout_ms));
    if (auto opened = open_for_ranks(credentials, join); !opened) co_return opened;
    streams_ = std::make_unique<RankStreams>(io_.get_executor(), *link_,
                                             bootstrap_.output_window_bytes, [this] {
                                                 say_paused();
                                                 finish_if_done();
                                             });
    tasks_.spawn(link_->run_writer());
    tasks_.spawn(watch_lifeline());
    parts_.connected();
    co_await check_health();
    co_await prepare_services(join);
    // What told us to end may have come first.
    if (!ending_.leaving) link_->send(encode(join));
    if (!ending_.leaving) keep_ready();
    co_return Result<void>{};
}

Join Agent::describe_host(const Connection& connection) const {
    Join join;
    join.host = bootstrap_.host;
    join.hostname = host_name();
    join.agent_pid = ::getpid();
    join.address = local_address(connection.socket);
    join.addresses.push_back(join.address);
    for (const InterfaceAddress& address : interface_addresses()) {
        if (address.address == join.address)
            join.interface = address.interface;
        else if (!address.loopback)
            join.addresses.push_back(address.address);
    }
    join.free_port = reserved_ports_.first();
    join.directory = preflight_.directory;
    return join;
}

void Agent::learn_facts(const JobId& job) {
    facts_.job = hex(job);
    facts_.host_name = bootstrap_.host_name;
    facts_.contracts = bootstrap_.contracts;
    facts_.nodelist = bootstrap_.nodelist;
    facts_.tasks_per_node = bootstrap_.tasks_per_node;
    facts_.torch_store = bootstrap_.torch_store;
    facts_.max_restarts = bootstrap_.max_restarts;
    facts_.ranks_min = bootstrap_.ranks_min;
    facts_.ranks_max = bootstrap_.ranks_max;
    facts_.role = bootstrap_.role;
    facts_.run_id = bootstrap_.run_id;
    facts_.cpus_per_rank = bootstrap_.cpus_per_rank;
}

/// For everybody who connects to us: ranks, agents behind us, and frameworks.
Result<void> Agent::open_for_ranks(const Credentials& credentials, Join& join) {
    connections_ = std::make_unique<Connections>(io_.get_executor(), *link_, for_ranks(),
                                                 [this] { finish_if_done(); });
    living_ = std::make_unique<LivingRanks>(LivingRanks::Parts{
        .executor = io_.get_executor(),
        .connections = *connections_,
        .desk = desk_,
        .host_name = facts_.host_name,
        .describe = [this](const RankSlot& slot,
                           const Assign& world) { return describe_place(slot, world); },
        .tell_user = [this](const std::string& text) { tell_user(text); },
    });
    if (is_elastic())
        if (auto opened = living_->open(); !opened) return opened;
    auto rank_socket = connections_->open_for_ranks();
    if (!rank_socket) return std::unexpected(rank_socket.error());
    facts_.rank_socket = std::move(*rank_socket);
    services_ = parts_.make_services({
        .executor = io_.get_executor(),
        .bootstrap = bootstrap_,
        .facts = facts_,
        .user = preflight_.env,
        .connections = *connections_,
        .reserved_ports = reserved_ports_,
        .runner = *runner_,
        .tell_head = [this](const MpiNews& news) { link_->send(encode(news)); },
        .desk = desk_,
        .aborted = [this](Rank rank) { tasks_.spawn(end_aborted(assign_.generation, rank)); },
    });
    for (const auto& service : services_)
        if (auto opened = service->open(facts_); !opened) return opened;
    if (!bootstrap_.relay) return {};
    // Who names the interfaces to be used wants no other to be listened on.
    std::vector<std::string> addresses;
    if (!bootstrap_.interfaces.empty()) addresses.push_back(join.address);
    const auto port = connections_->open_for_agents(credentials, addresses);
    if (!port) return std::unexpected(port.error());
    join.relay_port = *port;
    return {};
}

/// Asks the user's own command whether this host can be used.
asio::awaitable<void> Agent::check_health() {
    const bool is_asked = !bootstrap_.health_check.empty() && parts_.check_health;
    if (!is_asked || preflight_.problem != HostProblem::none) co_return;
    ranks::RankCommand command{.path = "/bin/sh",
                               .argv = {"sh", "-c", bootstrap_.health_check},
                               .directory = preflight_.directory};
    contracts::Environment env = preflight_.env;
    env["DTRUN_JOB"] = facts_.job;
    env["DTRUN_HOST"] = facts_.host_name;
    for (const auto& [name, value] : env) command.env.push_back(name + "=" + value);
    const auto healthy = co_await parts_.check_health(std::move(command));
    if (healthy) co_return;
    preflight_.problem = HostProblem::other;
    preflight_.problem_text = healthy.error().message;
}

/// Has processes kept ready for what ranks are expected to be here, before the first are known.
void Agent::keep_ready() {
    if (bootstrap_.standby == 0 || preflight_.problem != HostProblem::none ||
        preflight_.program.empty())
        return;
    Assign world;
    world.generation = 1;
    world.world_size = bootstrap_.standby;
    world.node_count = 1;
    for (std::uint32_t i = 0; i < bootstrap_.standby; ++i) {
        RankSlot& slot = world.ranks.emplace_back();
        slot.rank = Rank{i};
        slot.local_rank = slot.slot = i;
        slot.place = SlotIndex{i};
        slot.cross_size = 1;
    }
    const ranks::RankCommand like = command_for(world, world.ranks.front(), {});
    if (like.argv != bootstrap_.argv)
        return tell_user(
            "no processes are kept ready (--standby): ranks differ in their arguments");
    runner_->keep_ready(
        {bootstrap_.standby, bootstrap_.preload, ranks::directory_prefix(facts_.job)}, like);
}

asio::awaitable<void> Agent::prepare_services(Join& join) {
    if (preflight_.problem == HostProblem::none && !preflight_.program.empty()) {
        for (const auto& service : services_) {
            const auto prepared = co_await service->prepare(preflight_.program);
            if (prepared) continue;
            preflight_.problem = HostProblem::mpi;
            preflight_.problem_text = prepared.error().message;
        }
    }
    join.problem = preflight_.problem;
    join.problem_text = preflight_.problem_text;
}

Connections::ForRanks Agent::for_ranks() {
    return {
        .greet = [this](PeerId peer, const Hello& hello) { return welcome(peer, hello); },
        .take = [this](PeerId peer, const FrameView& frame) -> Result<bool> {
            if (!is_for_agent(frame.type)) return false;
            const auto taken = living_->says(peer, frame);
            if (!taken) return std::unexpected(taken.error());
            return true;
        },
        .left = [this](PeerId peer) { living_->left(peer); },
    };
}

/// The place of a rank of this host, or of a helper of one. A process of an elastic job may have had
/// another rank at its start.
Result<std::optional<Welcome>> Agent::welcome(PeerId peer, const Hello& hello) {
    living_->give_page(peer, hello);
    if (const auto place = desk_.started_as(hello.generation, hello.rank))
        return living_->hello(peer, *place, hello);
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
    return welcome;
}

void Agent::beat() {
    load_.sample(Clock::now());
    say_alive();
    connections_->beat(*pulse_);
    say_who_waits(WaitReport::kWorthTelling);
    if (ending_.head_stopped) return;
    const auto silence = pulse_->lost_with_machine(*link_);
    if (silence) leave(fmt::format("dtrun was {}", describe_silence(*silence)));
}

/// Sends a heartbeat, which says "busy" also while ranks start: new ranks take all processors, and
/// go on to do so for long.
void Agent::say_alive() {
    connections_->say_alive(start_ || load_.is_high(Clock::now()));
}

void Agent::say_who_waits(std::chrono::milliseconds at_least) {
    if (ending_.strays) return;
    std::vector<RankWait> waits;
    for (const auto& service : services_) service->add_waits(waits);
    if (const auto said = wait_report_.look(std::move(waits), at_least)) link_->send(encode(*said));
}

void Agent::rank_exited(const Exited& ended) {
    Exited exited = ended;
    processes_.erase(exited.place);
    desk_.ended(exited.place);
    for (const auto& service : services_) service->ended(exited);
    if (!link_) return;
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
        fmt::format("rank {} on {} {}", exited.rank, bootstrap_.host_name, how));
}

/// Sends a frame, which the head shows at once; standard error is shown only with the host's end.
void Agent::tell_user(const std::string& text) {
    MpiNews news;
    news.generation = assign_.generation;
    news.note = fmt::format("{}: {}", bootstrap_.host_name, text);
    link_->send(encode(news));
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
    if (served.error().code != Errc::cancelled) leave(served.error().message);
}

Result<void> Agent::handle(const FrameView& frame) {
    if (is_exchanged(frame.type) || frame.type == FrameType::relayed)
        return connections_->from_head(frame);
    if (frame.type == FrameType::signal)
        if (const auto signal = decode<SignalRanks>(frame.payload)) head_signalled(signal->signal);
    const bool for_ranks = frame.type == FrameType::input || frame.type == FrameType::signal;
    if (start_ && for_ranks) {
        start_->deferred.emplace_back(frame.type, frame.payload);
        return {};
    }
    switch (frame.type) {
        case FrameType::assign:
            return on_assign(frame.payload);
        case FrameType::input: {
            auto input = decode<Input>(frame.payload);
            if (!input) return std::unexpected(input.error());
            streams_->input(std::move(input->bytes));
            return {};
        }
        case FrameType::pause:
            return on_pause(frame.payload);
        case FrameType::stop:
            return on_stop(frame.payload);
        case FrameType::probe:
            return on_probe(frame.payload);
        case FrameType::sever:
            return on_sever(frame.payload);
        case FrameType::prepare:
            return on_prepare(frame.payload);
        case FrameType::end_ranks:
            return on_end_ranks(frame.payload);
        case FrameType::notify:
            return on_notify(frame.payload);
        case FrameType::roll: {
            const auto roll = decode<Roll>(frame.payload);
            if (!roll) return std::unexpected(roll.error());
            link_->send(encode(Rolled{roll->number}));
            return {};
        }
        case FrameType::credit: {
            const auto credit = decode<Credit>(frame.payload);
            if (!credit) return std::unexpected(credit.error());
            streams_->credit(credit->bytes);
            return {};
        }
        case FrameType::signal: {
            const auto signal = decode<SignalRanks>(frame.payload);
            if (!signal) return std::unexpected(signal.error());
            runner_->signal(signal->signal);
            return {};
        }
        case FrameType::refuse: {
            const auto refuse = decode<Refuse>(frame.payload);
            return fail(Errc::denied, "the head refused this host: {}",
                        refuse ? refuse->reason : "malformed reason");
        }
        default:
            return fail(Errc::invalid_input, "unexpected frame of type {}",
                        static_cast<int>(frame.type));
    }
}

/// Ctrl-Z stops the head after the ranks. A stopped head is silent but not lost: should it end, its
/// kernel closes the connection.
void Agent::head_signalled(int signal) {
    if (signal != SIGTSTP && signal != SIGCONT) return;
    ending_.head_stopped = signal == SIGTSTP;
    link_->set_peer_stopped(ending_.head_stopped);
}

Result<void> Agent::on_assign(std::string_view payload) {
    auto assign = decode<Assign>(payload);
    if (!assign) return std::unexpected(assign.error());
    if (ending_.leaving || ending_.strays) return {};
    if (preflight_.problem != HostProblem::none)
        return fail(Errc::invalid_input, "told to start what cannot be started");
    choose_interface(*assign);
    const std::vector<RankSlot> fresh = take_over(*assign);
    const bool goes_on = fresh.size() < assign->ranks.size();
    for (const auto& service : services_)
        if (auto begun = goes_on ? service->go_on(*assign) : service->begin(*assign); !begun)
            return begun;
    reserved_ports_.release();
    wait_report_.begin(assign->generation);
    connections_->relay().begin(assign->generation, assign->ranks_below);
    assign_ = *assign;
    living_->begin(assign_);
    desk_.begin(assign_);
    start_ = Start{assign_.generation, fresh.size(), {assign_.generation, {}}};
    say_alive();
    tasks_.spawn(start_when_ready(fresh));
    return {};
}

/// Processes that live on, or were started for this world beforehand, get their ranks in it.
/// \return the ranks that are to be started
std::vector<RankSlot> Agent::take_over(const Assign& world) {
    const auto prepared = std::exchange(prepared_, std::nullopt);
    std::vector<RankSlot> fresh;
    for (const RankSlot& slot : world.ranks) {
        const bool is_prepared = prepared && prepared->generation == world.generation &&
                                 std::ranges::find(prepared->ranks, slot.place, &RankSlot::place) !=
                                     prepared->ranks.end();
        const bool is_kept = std::ranges::find(world.kept, slot.place) != world.kept.end();
        if (is_kept || is_prepared)
            runner_->renumber(slot.place, world.generation, slot.rank);
        else
            fresh.push_back(slot);
    }
    return fresh;
}

/// Starts ranks of a world that has not begun: their first requests are held until it does.
Result<void> Agent::on_prepare(std::string_view payload) {
    auto prepare = decode<Prepare>(payload);
    if (!prepare) return std::unexpected(prepare.error());
    Assign& world = prepare->world;
    if (ending_.leaving || ending_.ending || ending_.strays) return {};
    if (preflight_.problem != HostProblem::none)
        return fail(Errc::invalid_input, "told to start what cannot be started");
    if (assign_.generation == 0) choose_interface(world);
    prepared_ = world;
    tasks_.spawn(start_prepared(std::move(world)));
    return {};
}

asio::awaitable<void> Agent::start_prepared(Assign world) {
    const std::uint64_t generation = world.generation;
    const std::function<bool(SlotIndex)> wanted = [this, generation](SlotIndex place) {
        return prepared_ && prepared_->generation == generation && !ending_.ending &&
               std::ranges::find(prepared_->ranks, place, &RankSlot::place) !=
                   prepared_->ranks.end();
    };
    std::vector<RankSlot> ranks = world.ranks;
    const auto done = co_await start_ranks(std::move(world), std::move(ranks), wanted);
    if (!done) leave(done.error().message);
}

Result<void> Agent::on_end_ranks(std::string_view payload) {
    auto order = decode<EndRanks>(payload);
    if (!order) return std::unexpected(order.error());
    if (prepared_)
        std::erase_if(prepared_->ranks, [&order](const RankSlot& slot) {
            return std::ranges::find(order->places, slot.place) != order->places.end();
        });
    living_->dismiss(order->places, bootstrap_.grace_ms);
    for (const SlotIndex place : order->places)
        if (!processes_.contains(place)) {  // it has not been started yet, and will not be
            Exited exited;
            exited.place = place;
            exited.signal = exited.sent_signal = SIGKILL;
            link_->send(encode(exited));
        }
    tasks_.spawn(end_ranks(std::move(*order)));
    return {};
}

asio::awaitable<void> Agent::end_ranks(EndRanks order) {
    for (const SlotIndex place : order.places) runner_->end(place, order.signal);
    if (order.signal == SIGKILL) co_return;
    Timer timer(io_, std::chrono::milliseconds(bootstrap_.grace_ms));
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (error) co_return;
    for (const SlotIndex place : order.places)
        if (processes_.contains(place)) runner_->end(place, SIGKILL);
}

/// Chooses the interface over which ranks talk to each other: on several hosts the one towards rank
/// 0's host. The way to the head may be loopback here, which the other hosts cannot use.
void Agent::choose_interface(const Assign& assign) {
    facts_.interface = preflight_.interface.empty() ? interface_ : preflight_.interface;
    if (!preflight_.interface.empty() || assign.node_count < 2) return;
    const std::vector<InterfaceAddress> interfaces = interface_addresses();
    const auto holds = [&interfaces](const std::string& address) {
        return std::ranges::find(interfaces, address, &InterfaceAddress::address);
    };
    auto found = holds(assign.master_address);
    if (found == interfaces.end()) found = holds(address_towards(assign.master_address));
    if (found != interfaces.end() && !found->loopback) facts_.interface = found->interface;
}

/// Starts the ranks once every service is ready; the head's frames for them are deferred meanwhile.
asio::awaitable<void> Agent::start_when_ready(std::vector<RankSlot> fresh) {
    const std::uint64_t generation = assign_.generation;
    const bool none = fresh.empty();
    for (const auto& service : services_) co_await service->ready();
    const std::function<bool(SlotIndex)> wanted = [this, generation](SlotIndex) {
        return start_ && start_->generation == generation;
    };
    if (!wanted({})) co_return;
    const auto done = co_await start_ranks(assign_, std::move(fresh), wanted);
    if (!done) leave(done.error().message);
    if (none && wanted({})) all_started();
}

/// Makes all offers before the first rank runs, as running ranks may change what offers depend on.
/// The event loop runs between two forks: on a busy machine many forks take longer than the head
/// waits for a heartbeat.
asio::awaitable<Result<void>> Agent::start_ranks(Assign world, std::vector<RankSlot> fresh,
                                                 std::function<bool(SlotIndex)> wanted) {
    const std::uint64_t generation = world.generation;
    raise_descriptor_limit(kDescriptors + world.ranks.size() * kDescriptorsOfRank);
    std::vector<ranks::RankOffer> offers;  // with what ranks inherit
    std::vector<ranks::RankRunner::Request> requests;
    for (const RankSlot& slot : fresh) {
        ranks::RankOffer& offer = offers.emplace_back();
        if (is_elastic()) desk_.started(slot.place, generation, slot.rank);
        for (const auto& service : services_)
            if (auto offered = service->offer(world, slot, offer); !offered) co_return offered;
        requests.push_back({generation, slot.rank, slot.place, command_for(world, slot, offer)});
    }
    for (const ranks::RankRunner::Request& request : requests) {
        if (!wanted(request.place)) continue;
        processes_.insert(request.place);
        runner_->start(request, [this, generation](ranks::RankRunner::Start start) {
            rank_started(std::move(start), generation);
        });
        co_await asio::post(io_, asio::use_awaitable);
    }
    co_return Result<void>{};
}

bool Agent::wants_input(Rank rank) const {
    return bootstrap_.input == InputTarget::all ||
           (bootstrap_.input == InputTarget::one && bootstrap_.input_rank == rank);
}

ranks::RankCommand Agent::command_for(const Assign& world, const RankSlot& slot,
                                      const ranks::RankOffer& offer) const {
    contracts::Environment env = preflight_.env;
    contracts::ContractFacts facts = facts_;
    facts.error_file = offer.error_file;
    facts.mpi = offer.mpi;
    if (offer.horovod_port != 0) facts.horovod_port = offer.horovod_port;
    const contracts::ContractVariables contract =
        contracts::contract_variables(world, slot, facts, preflight_.env);
    for (const auto& [name, value] : contract.defaults) env.try_emplace(name, value);
    for (const auto& [name, value] : contract.fixed) env[name] = value;
    if (bootstrap_.ranks_min > 0 && has_accelerators()) keep_devices(slot, env);
    ranks::RankCommand command{
        .path = preflight_.program,
        .argv = bootstrap_.rank_macros ? ranks::replace_macros(bootstrap_.argv, world, slot)
                                       : bootstrap_.argv,
        .env = {},
        .directory = preflight_.directory,
        .wants_input = wants_input(slot.rank),
        .inherited = offer.mpi.pmi_fd,
        .own_session = offer.mpi.mpich,  // MPICH waits by spinning
        .descriptor_limit = descriptor_limit_,
    };
    if (bootstrap_.standby > 0) command.late = contracts::names_of_rank(contract);
    command.env.reserve(env.size());
    for (const auto& [name, value] : env) command.env.push_back(name + "=" + value);
    return command;
}

/// In an elastic job: a process whose place is not its local rank leaves the others their devices.
void Agent::keep_devices(const RankSlot& slot, contracts::Environment& env) const {
    for (const char* const name : {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
        const auto given = env.find(name);
        const auto inherited =
            given == env.end() ? std::nullopt : std::optional<std::string_view>(given->second);
        auto list = visible_devices(slot.place, slot.local_rank, inherited,
                                    std::max(std::to_underlying(slot.place), slot.local_rank) + 1);
        if (list) env[name] = std::move(*list);
    }
}

void Agent::rank_started(ranks::RankRunner::Start start, std::uint64_t generation) {
    const bool wanted = start_ && start_->generation == generation;
    if (!start.executed) processes_.erase(start.place);
    if (start.executed) {
        if (wanted) start_->started.ranks.push_back({start.rank, start.place, start.pid});
        streams_->add(start);
    } else {
        Exited exited;
        exited.generation = generation;
        exited.rank = start.rank;
        exited.place = start.place;
        exited.code = start.executed.error().code == Errc::not_found ? 127 : 126;
        exited.error = start.executed.error().message;
        tell_end(exited, "could not be started");
    }
    if (wanted && --start_->missing == 0) all_started();
}

/// All have executed their programs, or could not.
void Agent::all_started() {
    const Start start = *std::exchange(start_, std::nullopt);
    link_->send(encode(start.started));
    load_.sample(Clock::now());
    say_alive();
    if (is_elastic() && !std::exchange(said_severing_, true))
        if (const std::string why = ranks::why_not_sever(); !why.empty())
            link_->send(encode(SeveredNews{assign_.generation, 0, why}));
    for (const auto& [type, payload] : start.deferred) {
        const auto handled = handle({type, payload});
        if (!handled) return leave(handled.error().message);
    }
}

/// The ranks of the generation are not wanted any more, nor is what came for them.
void Agent::forget_start() {
    if (!start_) return;
    const Start start = *std::exchange(start_, std::nullopt);
    for (const auto& [type, payload] : start.deferred) {
        const auto input = decode<Input>(payload);
        if (type == FrameType::input && input)
            link_->send(encode(InputCredit{input->bytes.size()}));
    }
}

Result<void> Agent::on_pause(std::string_view payload) {
    const auto pause = decode<Pause>(payload);
    if (!pause) return std::unexpected(pause.error());
    if (ending_.leaving || ending_.strays) return {};  // there will be no other generation here
    const std::uint64_t generation = pause->generation;
    forget_start();
    const Change change{assign_.generation, generation, ChangeReason::restarted,
                        unix_ms_after(pause->grace_ms), 0};
    announce(change, pause->grace_ms, pause->why);
    runner_->stop_all(pause->signal, std::chrono::milliseconds(pause->grace_ms),
                      [this, generation](int strays) {
                          ending_.strays_before += strays;
                          streams_->hurry();
                          end_services([this, generation] {
                              if (ending_.ending) return;  // the job, meanwhile
                              ending_.pausing = generation;
                              say_paused();
                          });
                      });
    return {};
}

/// Reports the pause once all output of the ranks was sent: the next ranks have other numbers.
void Agent::say_paused() {
    if (!ending_.pausing || ending_.unreported > 0 || !streams_->all_ended()) return;
    const Paused paused{*std::exchange(ending_.pausing, std::nullopt)};
    link_->send(encode(paused));
}

Result<void> Agent::on_stop(std::string_view payload) {
    const auto stop = decode<Stop>(payload);
    if (!stop) return std::unexpected(stop.error());
    say_who_waits(std::chrono::milliseconds(0));
    connections_->relay().announce(
        {Event::Kind::shutdown, assign_.generation, stop->grace_ms, stop->why});
    if (stop->by_scheduler && !signals_.everybody_got(stop->signal))
        tasks_.spawn(stop_after(*stop));
    else
        end_job(stop->signal, std::chrono::milliseconds(stop->grace_ms));
    return {};
}

/// Waits a moment before ending the job: another host was faster to report a scheduler's signal,
/// which may be on its way to the ranks here and must not reach them twice.
asio::awaitable<void> Agent::stop_after(Stop stop) {
    Timer timer(io_, AgentSignals::kSpread);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (error || ending_.strays || ending_.leaving) co_return;  // it has ended meanwhile
    end_job(stop.signal, std::chrono::milliseconds(stop.grace_ms));
}

Result<void> Agent::on_probe(std::string_view payload) {
    auto probe = decode<Probe>(payload);
    if (!probe) return std::unexpected(probe.error());
    tasks_.spawn(answer_probe(std::move(*probe), ++probes_));
    return {};
}

/// Answers only the latest probe: the head does not ask for older ones any more.
asio::awaitable<void> Agent::answer_probe(Probe probe, unsigned number) {
    const Reached reached = co_await try_addresses(std::move(probe));
    if (number == probes_) link_->send(encode(reached));
}

/// Ranks are told by everything through which they may learn it.
void Agent::announce(const Change& change, std::uint32_t grace_ms, const std::string& why) {
    for (const auto& service : services_) service->changing(change);
    living_->announce(change, grace_ms, why);
}

/// Hosts change, and ranks may go on for a while.
Result<void> Agent::on_notify(std::string_view payload) {
    const auto notify = decode<Notify>(payload);
    if (!notify) return std::unexpected(notify.error());
    if (notify->generation <= assign_.generation || ending_.ending) return {};
    Change change{assign_.generation, notify->generation, notify->reason, 0, notify->stop_step};
    if (notify->deadline_ms > 0) change.deadline_ms = unix_ms_after(notify->deadline_ms);
    announce(change, notify->deadline_ms, "hosts change");
    for (const auto& service : services_) service->notify(*notify);
    if (notify->signal != 0) runner_->signal(notify->signal);
    return {};
}

/// Addresses that this host has as well, as those of a container's bridge, mean the host itself here.
Result<void> Agent::on_sever(std::string_view payload) {
    auto wanted = decode<Sever>(payload);
    if (!wanted) return std::unexpected(wanted.error());
    const std::vector<InterfaceAddress> own = interface_addresses();
    std::erase_if(wanted->addresses, [&own](const std::string& address) {
        return std::ranges::find(own, address, &InterfaceAddress::address) != own.end();
    });
    if (wanted->world && wanted->generation == assign_.generation) {
        announce({assign_.generation, assign_.generation + 1, ChangeReason::lost, 0, 0}, 0,
                 "a rank is lost");
        connections_->relay().fail_fences("a rank of this generation is lost");
    }
    tasks_.spawn(sever(std::move(*wanted)));
    return {};
}

/// Severs at once, and again while a rank that has not understood yet may have tried once more.
asio::awaitable<void> Agent::sever(Sever wanted) {
    Timer timer(io_);
    for (const std::chrono::milliseconds wait : kSeverAgain) {
        timer.expires_after(wait);
        co_await timer.async_wait(use_tuple);
        if (assign_.generation != wanted.generation || ending_.ending) co_return;
        ranks::SeverWhat what{wanted.addresses, {}};
        if (wanted.world)
            for (const auto& service : services_) service->add_endpoints(what.endpoints);
        const ranks::Severed done = runner_->sever(what);
        if (done.connections == 0 && done.error == 0) continue;
        SeveredNews news{wanted.generation, done.connections, {}};
        if (done.error != 0) news.problem = std::strerror(done.error);
        link_->send(encode(news));
    }
}

void Agent::leave(std::string_view why) {
    if (std::exchange(ending_.leaving, true)) return;
    finished_.cancel();
    if (ending_.done) return;
    log::warn("{}: ending the ranks", why);
    const std::chrono::milliseconds grace(bootstrap_.grace_ms);
    end_job(SIGTERM, std::min(grace, kOrphanGraceMax));
}

void Agent::end_job(int signal, std::chrono::milliseconds grace) {
    ending_.pausing.reset();
    ending_.ending = true;
    forget_start();
    runner_->retire();
    runner_->stop_all(signal, grace, [this](int strays) {
        streams_->hurry();
        end_services([this, strays] {
            ending_.strays = std::max(ending_.strays.value_or(0), strays);
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
    if (ending_.done || !ending_.strays || ending_.unreported > 0 ||
        (!ending_.leaving && (!streams_->all_ended() || connections_->has_agents())))
        return;
    ending_.done = true;
    const auto strays = static_cast<std::uint32_t>(*ending_.strays + ending_.strays_before);
    if (!ending_.leaving) link_->send(encode(Done{strays}));
    finished_.cancel();
}

}  // namespace dtrun::agent
