#include "worker/agent/agent.h"

#include "base/build_id.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "worker/agent/guard.h"
#include "worker/agent/probe.h"
#include "worker/ranks/rank_macros.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstring>

namespace dtrun::agent {
namespace {

/// Between the first and the last process that gets a scheduler's signal.
constexpr std::chrono::milliseconds kSignalSpread{300};
constexpr std::chrono::seconds kGoodbyeLimit{5};  // for the head to close
/// Ranks that meet wait for each other all the time, but not long.
constexpr std::chrono::milliseconds kWaitWorthTelling{1'000};
constexpr std::chrono::milliseconds kAbortGrace{300};
constexpr std::size_t kWaitsMax = 10'000;  // that are told of
/// Pipes and connections to ours of the rank itself, of torch's and Horovod's stores and of MPI, and of
/// processes that the rank starts.
constexpr std::uint64_t kDescriptorsOfRank = 16;
constexpr std::uint64_t kDescriptors = 600;  // all others
/// Nobody is left who could ask for more time: less than the promise of 5 s.
constexpr std::chrono::milliseconds kOrphanGraceMax{2'000};

/// Signals for the ranks to make of what they like; the others of kGuardSignals end the job.
bool asks_ranks(int signal) {
    return signal == SIGUSR1 || signal == SIGUSR2;
}
bool ends_job(int signal) {
    return !asks_ranks(signal) && std::ranges::find(kGuardSignals, signal) != kGuardSignals.end();
}

bool is_recent(const std::map<int, Deadline>& signals, int signal) {
    const auto found = signals.find(signal);
    return found != signals.end() && Clock::now() - found->second < 2 * kSignalSpread;
}

}  // namespace

Agent::Agent(asio::io_context& io, char** host_env, std::string node)
    : io_(io),
      host_env_(host_env),
      node_(std::move(node)),
      lifeline_(io, ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
      supervisor_(
          io.get_executor(), [this](const Exited& exited) { rank_exited(exited); },
          [this](const std::string& text) { tell_user(text); }),
      tasks_(io.get_executor()),
      finished_(io, asio::steady_timer::time_point::max()),
      head_gone_(io, asio::steady_timer::time_point::max()),
      signals_(io) {
    for (std::size_t i = 0; i < kGuardSignals.size(); ++i) {
        signals_.add(kGuardSignals[i]);
        signals_.add(passed_on(i));
    }
}

asio::awaitable<int> Agent::run() {
    say(fmt::format("dtrun-agent {} {}", kProtocolVersion,
                    elf_build_id("/proc/self/exe").value_or("none")));
    const auto told = co_await read_bootstrap();
    if (!told) {
        say("dtrun-agent-failed " + told.error().message);
        co_return 1;
    }
    log::init("dtrun-agent " + bootstrap_.host_name, static_cast<log::Level>(bootstrap_.log_level));
    preflight_ = check_host(bootstrap_, host_env_);
    reserved_ports_ = ReservedPorts(bootstrap_.reserve_ports);
    reserved_ports_.listen_on_first(io_.get_executor());

    const auto joined = co_await join_head();
    if (!joined) {
        say("dtrun-agent-failed " + joined.error().message);
        co_return 1;
    }
    tasks_.spawn(serve_head());
    tasks_.spawn(pulse_->run([this] { beat(); }));
    while (!done_) co_await finished_.async_wait(use_tuple);
    if (!leaving_) co_await say_goodbye();
    stores_->stop();
    mpi_->stop();
    ports_->stop();
    tasks_.stop();
    link_->close();
    co_await stores_->join();
    co_await mpi_->join();
    co_await ports_->join();
    co_await tasks_.join();
    co_return 0;
}

/// Closing while bytes of the head's are unread would take back what it has not read yet: wait until
/// it closes.
asio::awaitable<void> Agent::say_goodbye() {
    co_await link_->flush();
    link_->shut_down_sending();
    DeadlineGuard guard(head_gone_, after(kGoodbyeLimit));
    if (!leaving_) co_await head_gone_.async_wait(use_tuple);
}

void Agent::say(std::string_view line) const {
    const std::string whole = node_.empty() ? fmt::format("{}\n", line)  //
                                            : fmt::format("@{} {}\n", node_, line);
    if (!write_all(STDOUT_FILENO, whole)) log::debug("nobody reads our output");
}

/// The place of a rank of this host, or of a helper of one.
Result<Welcome> Agent::welcome(const Hello& hello) const {
    if (assign_.generation == 0) return fail(Errc::denied, "no rank has been started yet");
    if (hello.generation != 0 && hello.generation != assign_.generation)
        return fail(Errc::denied, "generation {} is over, this is {}", hello.generation,
                    assign_.generation);
    Welcome welcome;
    welcome.job = facts_.job;
    welcome.generation = assign_.generation;
    welcome.world_size = assign_.world_size;
    welcome.local_size = static_cast<std::uint32_t>(assign_.ranks.size());
    welcome.node_rank = assign_.node_rank;
    welcome.node_count = assign_.node_count;
    welcome.host_name = facts_.host_name;
    if (hello.rank == kNoRank) return welcome;
    const auto slot = std::ranges::find(assign_.ranks, hello.rank, &RankSlot::rank);
    if (slot == assign_.ranks.end())
        return fail(Errc::denied, "rank {} is not on this host", hello.rank);
    welcome.rank = slot->rank;
    welcome.local_rank = slot->local_rank;
    welcome.cross_rank = slot->cross_rank;
    welcome.cross_size = slot->cross_size;
    return welcome;
}

void Agent::beat() {
    load_.sample(Clock::now());
    say_alive();
    ports_->beat(*pulse_);
    say_who_waits(kWaitWorthTelling);
    if (head_stopped_) return;
    const auto silence = pulse_->lost_with_machine(*link_);
    if (silence) leave(fmt::format("dtrun was {}", describe_silence(*silence)));
}

/// New ranks take all processors at once, for long after they have been started.
void Agent::say_alive() {
    ports_->say_alive(starting_ || load_.is_high(Clock::now()));
}

/// Often nobody, or the same as before: then there is nothing to say.
void Agent::say_who_waits(std::chrono::milliseconds at_least) {
    if (assign_.generation == 0 || strays_) return;
    Waits waits{assign_.generation, stores_->waits()};
    std::ranges::move(mpi_->waits(), std::back_inserter(waits.waits));
    std::erase_if(waits.waits, [at_least](const RankWait& wait) {
        return wait.waited_ms < static_cast<std::uint32_t>(at_least.count());
    });
    if (waits.waits.size() > kWaitsMax) waits.waits.resize(kWaitsMax);
    const auto goes_on = [](RankWait before, const RankWait& now) {
        const bool longer = before.waited_ms <= now.waited_ms;
        before.waited_ms = now.waited_ms;
        return longer && before == now;
    };
    if (std::ranges::equal(waits_said_, waits.waits, goes_on)) return;
    link_->send(encode(waits));
    waits_said_ = std::move(waits.waits);
}

void Agent::rank_exited(const Exited& ended) {
    Exited exited = ended;
    exited.traceback = error_files_.take(exited.rank);
    feeds_.erase(exited.rank);
    if (!link_) return;
    // What it has said of MPI before may lie unread at this moment.
    ++unreported_;
    asio::post(io_, [this, exited]() mutable {
        mpi_->describe(exited);
        // A scheduler's signal may have come to the rank first.
        const bool unclear = !node_.empty() && exited.sent_signal == 0 && ends_job(exited.signal);
        if (unclear)
            tasks_.spawn(report_later(exited));
        else
            report(exited);
    });
}

asio::awaitable<void> Agent::report_later(Exited exited) {
    asio::steady_timer timer(io_, kSignalSpread);
    co_await timer.async_wait(use_tuple);
    if (is_recent(signalled_, exited.signal)) exited.sent_signal = exited.signal;
    report(exited);
}

void Agent::report(const Exited& exited) {
    tell_end(exited, "has ended");
    pump_->hurry();
    --unreported_;
    say_paused();
    finish_if_done();
}

/// Who waits for it at a fence does so in vain.
void Agent::tell_end(const Exited& exited, std::string_view how) {
    link_->send(encode(exited));
    ports_->relay().fail_fences(
        fmt::format("rank {} on {} {}", exited.rank, bootstrap_.host_name, how));
}

/// At once: what is written to standard error is shown with the host's end.
void Agent::tell_user(const std::string& text) {
    MpiNews news;
    news.generation = assign_.generation;
    news.note = fmt::format("{}: {}", bootstrap_.host_name, text);
    link_->send(encode(news));
}

/// It may say more, but not for long.
asio::awaitable<void> Agent::end_aborted(std::uint64_t generation, std::uint32_t rank) {
    asio::steady_timer timer(io_, kAbortGrace);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (!error) supervisor_.kill(generation, rank);
}

asio::awaitable<void> Agent::watch_lifeline() {
    std::array<char, 256> unexpected;
    for (;;) {
        const auto buffer = asio::buffer(unexpected);
        const auto [error, bytes] = co_await lifeline_.async_read_some(buffer, use_tuple);
        if (error == asio::error::operation_aborted) co_return;
        if (error) co_return leave("the lifeline to dtrun broke");
    }
}

asio::awaitable<void> Agent::watch_signals() {
    for (;;) {
        const auto [error, signal] = co_await signals_.async_wait(use_tuple);
        if (error) co_return;
        on_signal(signal);
    }
}

void Agent::on_signal(int signal) {
    for (std::size_t i = 0; i < kGuardSignals.size(); ++i)
        if (signal == passed_on(i)) return guard_got(kGuardSignals[i]);
    if (!node_.empty() && ::getppid() == guard_) {
        signalled_[signal] = Clock::now();
        scheduler_sent(signal);
    } else if (!asks_ranks(signal)) {
        leave(fmt::format("signal {}", signal));  // the guard died, or somebody wants us gone
    }
}

/// Some schedulers signal every process of their step, others only the one they started, which is the
/// guard: then it is for us to pass on.
void Agent::guard_got(int signal) {
    if (node_.empty() && asks_ranks(signal)) return supervisor_.signal(signal);
    if (node_.empty()) return leave(fmt::format("signal {}", signal));
    guard_signalled_[signal] = Clock::now();
    scheduler_sent(signal);
    if (asks_ranks(signal)) tasks_.spawn(pass_on(signal));
}

asio::awaitable<void> Agent::pass_on(int signal) {
    asio::steady_timer timer(io_, kSignalSpread);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (!error && !is_recent(signalled_, signal)) supervisor_.signal(signal);
}

/// A scheduler that wants the end means the job's, which is for the head, with the grace that the user
/// asked for.
void Agent::scheduler_sent(int signal) {
    if (asks_ranks(signal)) return;
    if (everybody_got(signal)) supervisor_.signalled(signal);
    link_->send(encode(SignalRanks{signal}));
}

/// Ranks too, since their ancestors got it each for itself.
bool Agent::everybody_got(int signal) const {
    return is_recent(signalled_, signal) && is_recent(guard_signalled_, signal);
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
        return ports_->from_head(frame);
    if (frame.type == FrameType::signal) head_signalled(frame.payload);
    const bool for_ranks = frame.type == FrameType::input || frame.type == FrameType::signal;
    if (starting_ && for_ranks) {
        deferred_.emplace_back(frame.type, frame.payload);
        return {};
    }
    switch (frame.type) {
        case FrameType::assign:
            return on_assign(frame.payload);
        case FrameType::input:
            return on_input(frame.payload);
        case FrameType::pause:
            return on_pause(frame.payload);
        case FrameType::stop:
            return on_stop(frame.payload);
        case FrameType::probe:
            return on_probe(frame.payload);
        case FrameType::credit: {
            const auto credit = decode<Credit>(frame.payload);
            if (!credit) return std::unexpected(credit.error());
            pump_->credit(credit->bytes);
            return {};
        }
        case FrameType::signal: {
            const auto signal = decode<SignalRanks>(frame.payload);
            if (!signal) return std::unexpected(signal.error());
            supervisor_.signal(signal->signal);
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

/// Ctrl-Z stops the head after the ranks: it is silent until somebody lets it go on, and its end is told
/// by its machine.
void Agent::head_signalled(std::string_view payload) {
    const auto signal = decode<SignalRanks>(payload);
    if (!signal || (signal->signal != SIGTSTP && signal->signal != SIGCONT)) return;
    head_stopped_ = signal->signal == SIGTSTP;
    link_->set_peer_stopped(head_stopped_);
}

Result<void> Agent::on_assign(std::string_view payload) {
    auto assign = decode<Assign>(payload);
    if (!assign) return std::unexpected(assign.error());
    if (leaving_ || strays_) return {};
    if (preflight_.problem != HostProblem::none)
        return fail(Errc::invalid_input, "told to start what cannot be started");
    choose_interface(*assign);
    const TorchStore torch = contracts::torch_store_for(*assign, facts_, preflight_.env);
    Fd master;
    if (torch == TorchStore::agent && has_rank_0(*assign) && !stores_->torch_listens())
        master = reserved_ports_.take_first();
    const auto served = stores_->begin(*assign, torch, std::move(master));
    if (!served) return served;
    if (auto begun = mpi_->begin(*assign); !begun) return begun;
    reserved_ports_.release();
    waits_said_.clear();
    ports_->relay().begin(assign->generation, assign->ranks_below);
    assign_ = *assign;
    starting_ = assign_.generation;
    say_alive();
    tasks_.spawn(start_when_ready());
    return {};
}

/// What comes from the head for the ranks meanwhile waits for them.
asio::awaitable<void> Agent::start_when_ready() {
    const std::uint64_t generation = assign_.generation;
    co_await mpi_->ready();
    if (starting_ != generation) co_return;  // they are not wanted any more
    const auto done = co_await start_ranks(generation);
    if (!done) leave(done.error().message);
}

/// All have executed their programs, or could not.
void Agent::all_started() {
    starting_.reset();
    link_->send(encode(started_));
    load_.sample(Clock::now());
    say_alive();
    for (const auto& [type, payload] : std::exchange(deferred_, {})) {
        const auto handled = handle({type, payload});
        if (!handled) return leave(handled.error().message);
    }
}

/// The ranks of the generation are not wanted any more, nor is what came for them.
void Agent::forget_start() {
    starting_.reset();
    for (const auto& [type, payload] : std::exchange(deferred_, {})) {
        const auto input = decode<Input>(payload);
        if (type == FrameType::input && input)
            link_->send(encode(InputCredit{input->bytes.size()}));
    }
}

/// What ranks find is settled before the first of them runs, and may change it. Between two forks
/// everybody else has a turn: on a busy machine many of them take longer than the head waits for a
/// heartbeat.
asio::awaitable<Result<void>> Agent::start_ranks(std::uint64_t generation) {
    started_ = {generation, {}};
    not_started_ = assign_.ranks.size();
    raise_descriptor_limit(kDescriptors + not_started_ * kDescriptorsOfRank);
    std::vector<mpi::MpiService::Offer> offers;  // with what ranks inherit
    std::vector<ranks::Supervisor::Request> requests;
    for (const RankSlot& slot : assign_.ranks) {
        auto offer = mpi_->offer(slot.rank);
        if (!offer) co_return std::unexpected(offer.error());
        requests.push_back({generation, slot.rank, command_for(assign_, slot, offer->facts)});
        offers.push_back(std::move(*offer));
    }
    for (ranks::Supervisor::Request& request : requests) {
        start_rank(std::move(request));
        co_await asio::post(io_, asio::use_awaitable);
        if (starting_ != generation) break;
    }
    co_return Result<void>{};
}

void Agent::start_rank(ranks::Supervisor::Request request) {
    const std::uint64_t generation = request.generation;
    supervisor_.start(std::move(request), [this, generation](ranks::Supervisor::Start start) {
        rank_started(std::move(start), generation);
    });
}

/// For ranks to talk to each other. Where we came over loopback, to a head on this machine, the others
/// of the job did not: the way to rank 0's host is theirs.
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

void Agent::rank_started(ranks::Supervisor::Start start, std::uint64_t generation) {
    if (start.executed) {
        started_.ranks.push_back({start.rank, start.pid});
        pump_->add(start.rank, Stream::out, std::move(start.out));
        pump_->add(start.rank, Stream::err, std::move(start.err));
        if (start.in)
            feeds_[start.rank] =
                std::make_unique<ranks::InputFeed>(io_.get_executor(), std::move(start.in));
    } else {
        Exited exited;
        exited.generation = generation;
        exited.rank = start.rank;
        exited.code = start.executed.error().code == Errc::not_found ? 127 : 126;
        exited.error = start.executed.error().message;
        tell_end(exited, "could not be started");
    }
    if (starting_ == generation && --not_started_ == 0) all_started();
}

bool Agent::wants_input(std::uint32_t rank) const {
    return bootstrap_.input == InputTarget::all ||
           (bootstrap_.input == InputTarget::one && bootstrap_.input_rank == rank);
}

ranks::RankCommand Agent::command_for(const Assign& assign, const RankSlot& slot,
                                      const contracts::MpiFacts& mpi) {
    contracts::Environment env = preflight_.env;
    contracts::ContractFacts facts = facts_;
    facts.error_file = error_files_.open(slot.rank);
    facts.mpi = mpi;
    const contracts::ContractVariables contract =
        contracts::contract_variables(assign, slot, facts, preflight_.env);
    for (const auto& [name, value] : contract.defaults) env.try_emplace(name, value);
    for (const auto& [name, value] : contract.fixed) env[name] = value;
    ranks::RankCommand command{preflight_.program,
                               bootstrap_.rank_macros
                                   ? ranks::replace_macros(bootstrap_.argv, assign, slot)
                                   : bootstrap_.argv,
                               {},
                               preflight_.directory,
                               wants_input(slot.rank),
                               mpi.pmi_fd,
                               mpi.mpich,  // it spins
                               descriptor_limit_};
    command.env.reserve(env.size());
    for (const auto& [name, value] : env) command.env.push_back(name + "=" + value);
    return command;
}

Result<void> Agent::on_input(std::string_view payload) {
    auto input = decode<Input>(payload);
    if (!input) return std::unexpected(input.error());
    if (input->bytes.empty()) {
        for (const auto& [rank, feed] : feeds_) feed->end();
        return {};
    }
    const auto give_credit = [this](const std::string* bytes) {
        if (!done_ && link_->is_open()) link_->send(encode(InputCredit{bytes->size()}));
        delete bytes;
    };
    const ranks::InputFeed::Chunk chunk(new std::string(std::move(input->bytes)), give_credit);
    for (const auto& [rank, feed] : feeds_) feed->push(chunk);
    return {};
}

Result<void> Agent::on_pause(std::string_view payload) {
    const auto pause = decode<Pause>(payload);
    if (!pause) return std::unexpected(pause.error());
    if (leaving_ || strays_) return {};  // there will be no other generation here
    const std::uint64_t generation = pause->generation;
    forget_start();
    ports_->relay().announce({Event::Kind::membership, generation, pause->grace_ms, pause->why});
    supervisor_.stop_all(pause->signal, std::chrono::milliseconds(pause->grace_ms),
                         [this, generation](int strays) {
                             strays_before_ += strays;
                             pump_->hurry();
                             mpi_->end([this, generation] { ranks_paused(generation); });
                         });
    return {};
}

void Agent::ranks_paused(std::uint64_t next_generation) {
    if (ending_) return;  // the job, meanwhile
    pausing_ = next_generation;
    say_paused();
}

/// Once everything was sent that the ranks have printed: the next ones have other numbers.
void Agent::say_paused() {
    if (!pausing_ || unreported_ > 0 || !pump_->all_ended()) return;
    const Paused paused{*std::exchange(pausing_, std::nullopt)};
    link_->send(encode(paused));
}

Result<void> Agent::on_stop(std::string_view payload) {
    const auto stop = decode<Stop>(payload);
    if (!stop) return std::unexpected(stop.error());
    say_who_waits(std::chrono::milliseconds(0));
    ports_->relay().announce(
        {Event::Kind::shutdown, assign_.generation, stop->grace_ms, stop->why});
    if (stop->by_scheduler && !everybody_got(stop->signal))
        tasks_.spawn(stop_after(*stop));
    else
        end_job(stop->signal, std::chrono::milliseconds(stop->grace_ms));
    return {};
}

/// Another host was faster to tell of a signal that may be on its way to the ranks here too: they are
/// not to get it twice.
asio::awaitable<void> Agent::stop_after(Stop stop) {
    asio::steady_timer timer(io_, kSignalSpread);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (error || strays_ || leaving_) co_return;  // it has ended meanwhile
    end_job(stop.signal, std::chrono::milliseconds(stop.grace_ms));
}

Result<void> Agent::on_probe(std::string_view payload) {
    auto probe = decode<Probe>(payload);
    if (!probe) return std::unexpected(probe.error());
    tasks_.spawn(answer_probe(std::move(*probe), ++probes_));
    return {};
}

/// Only the last one: what is found out too late is not asked for any more.
asio::awaitable<void> Agent::answer_probe(Probe probe, unsigned number) {
    const Reached reached = co_await try_addresses(std::move(probe));
    if (number == probes_) link_->send(encode(reached));
}

void Agent::leave(std::string_view why) {
    if (std::exchange(leaving_, true)) return;
    head_gone_.cancel();
    if (done_) return;
    log::warn("{}: ending the ranks", why);
    const std::chrono::milliseconds grace(bootstrap_.grace_ms);
    end_job(SIGTERM, std::min(grace, kOrphanGraceMax));
}

void Agent::end_job(int signal, std::chrono::milliseconds grace) {
    pausing_.reset();
    ending_ = true;
    forget_start();
    supervisor_.stop_all(signal, grace, [this](int strays) {
        pump_->hurry();
        mpi_->end([this, strays] {
            strays_ = std::max(strays_.value_or(0), strays);
            finish_if_done();
        });
    });
}

/// With no process left every pipe has its end, and the pump sees it once the head has room. Hosts
/// behind this one need it until they are done.
void Agent::finish_if_done() {
    if (done_ || !strays_ || unreported_ > 0 ||
        (!leaving_ && (!pump_->all_ended() || ports_->has_agents())))
        return;
    done_ = true;
    const auto strays = static_cast<std::uint32_t>(*strays_ + strays_before_);
    if (!leaving_) link_->send(encode(Done{strays}));
    finished_.cancel();
}

}  // namespace dtrun::agent
