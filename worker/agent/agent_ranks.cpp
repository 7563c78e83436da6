// How an agent starts its ranks, for a world that begins or for one that is to come.

#include "worker/agent/agent.h"

#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "base/milliseconds.h"
#include "hostfiles/nodelist.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/store_program.h"
#include "worker/agent/visible_devices.h"
#include "worker/ranks/agent_directories.h"
#include "worker/ranks/rank_macros.h"
#include "worker/stored/bundled_package.h"
#include "worker/stored/carried_libraries.h"

#include <algorithm>
#include <csignal>

namespace dtrun::agent {
namespace {

/// Pipes and connections to ours of the rank itself, of torch's and Horovod's stores and of MPI, and of
/// processes that the rank starts.
constexpr std::uint64_t kDescriptorsOfRank = 16;
constexpr std::uint64_t kDescriptors = 600;  // all others

}  // namespace

/// A job needs the package only if it has asked for its part: else its ranks may know nothing of Python.
void Agent::find_package() {
    if (!parts_.find_package) return;
    auto found = parts_.find_package();
    if (found) {
        package_ = std::move(*found);
        return look_for_libraries();
    }
    const std::string why = "dtrun's Python package: " + found.error().message;
    if (config_.horovod_shim && preflight_.problem == HostProblem::none) {
        preflight_.problem = HostProblem::other;
        preflight_.problem_text =
            why +
            "; dtrun-package.tar.gz belongs beside dtrun-agent, where dtrun was built or installed "
            "(--horovod-shim)";
    } else if (found.error().code != Errc::not_found) {
        package_problem_ = why;
    } else {
        log::debug("{}", why);
    }
}

/// Programs in C and C++ find libdtrun where nobody has installed it, as Python does.
void Agent::look_for_libraries() {
    const contracts::Environment& env = preflight_.env;
    if (!preflight_.program.empty())
        preflight_.lacks_library =
            lacks_carried_library(preflight_.program, preflight_.directory, env);
    for (std::size_t i = 0; i < preflight_.programs.size(); ++i) {
        ProgramHere& here = preflight_.programs[i];
        if (here.path.empty()) continue;
        contracts::Environment own = env;
        for (const auto& [name, value] : config_.programs[i].env) own[name] = value;
        here.lacks_library = lacks_carried_library(here.path, here.directory, own);
    }
}

/// Without a place where it can be made ranks do without it: few use it, and some have dtrun.
void Agent::offer_store_program() {
    if (!parts_.make_store_program) return;
    // It would be the last on their PATH, which leads to an installed one.
    const bool is_installed = ranks::find_program(std::string(kStoreProgram), preflight_.directory,
                                                  preflight_.env["PATH"])
                                  .has_value();
    if (is_installed && config_.programs.empty()) return;
    auto made = parts_.make_store_program(ranks::directory_prefix(facts_.job, facts_.agent));
    if (made)
        programs_ = std::move(*made);
    else
        log::info("ranks have no `dtrun store` of the agent: {}", made.error().message);
}

/// Has processes kept ready for what ranks are expected to be here, before the first are known.
void Agent::keep_ready() {
    if (config_.standby == 0 || preflight_.problem != HostProblem::none ||
        preflight_.program.empty())
        return;
    Assign world;
    world.generation = 1;
    world.world_size = config_.standby;
    world.node_count = 1;
    for (std::uint32_t i = 0; i < config_.standby; ++i) {
        RankSlot& slot = world.ranks.emplace_back();
        slot.rank = Rank{i};
        slot.local_rank = slot.slot = i;
        slot.place = SlotIndex{i};
        slot.cross_size = 1;
    }
    const ranks::RankCommand like = command_for(world, world.ranks.front(), {});
    if (like.argv != config_.argv)
        return tell_user(
            "no processes are kept ready (--standby): ranks differ in their arguments");
    runner_->keep_ready(
        {config_.standby, config_.preload, ranks::directory_prefix(facts_.job, facts_.agent)},
        like);
}

/// Processes that are there get their ranks in this world. One of them that has ended meanwhile is not
/// started again: the head hears of its end.
/// \return the ranks that are to be started
std::vector<RankSlot> Agent::take_over(const Assign& world) {
    std::vector<RankSlot> fresh;
    for (const RankSlot& slot : world.ranks) {
        if (std::ranges::find(world.kept, slot.place) != world.kept.end())
            runner_->renumber(slot.place, world.generation, slot.rank);
        else
            fresh.push_back(slot);
    }
    return fresh;
}

Result<void> Agent::name_nodes(Assign& world) {
    if (world.nodelist.empty()) return {};
    auto names = expand_nodelist(world.nodelist);
    if (!names) return std::unexpected(names.error());
    world.node_names = std::move(*names);
    return {};
}

/// Starts ranks of a world that has not begun: their first requests are held until it does.
Result<void> Agent::prepare(Prepare prepare) {
    Assign& world = prepare.world;
    if (ending_.leaving || ending_.ending || ending_.orphans) return {};
    if (preflight_.problem != HostProblem::none)
        return fail(Errc::invalid_input, "told to start what cannot be started");
    if (auto named = name_nodes(world); !named) return named;
    if (assign_.generation == 0) choose_interface(world);
    ++preparing_.number;
    preparing_.places.clear();
    for (const RankSlot& slot : world.ranks) preparing_.places.insert(slot.place);
    tasks_.spawn(start_prepared(std::move(world), preparing_.number));
    return {};
}

asio::awaitable<void> Agent::start_prepared(Assign world, std::uint64_t number) {
    const std::function<bool(SlotIndex)> wanted = [this, number](SlotIndex place) {
        return preparing_.number == number && preparing_.places.contains(place);
    };
    std::vector<RankSlot> ranks = world.ranks;
    const auto done = co_await start_ranks(std::move(world), std::move(ranks), wanted);
    if (!done) leave(done.error().message);
}

void Agent::end_processes(EndRanks order) {
    for (const SlotIndex place : order.places) preparing_.places.erase(place);
    elastic_clients_->dismiss(order.places, to_ms(config_.grace));
    for (const SlotIndex place : order.places)
        if (!processes_.contains(place)) {  // it has not been started yet, and will not be
            Exited exited;
            exited.place = place;
            exited.signal = exited.sent_signal = SIGKILL;
            link_->send(encode(exited));
        }
    tasks_.spawn(end_ranks(std::move(order)));
}

/// Another process may have been started in a place when the grace of the one before is over.
asio::awaitable<void> Agent::end_ranks(EndRanks order) {
    std::map<SlotIndex, std::uint64_t> meant;
    for (const SlotIndex place : order.places) {
        if (const auto found = processes_.find(place); found != processes_.end())
            meant.insert(*found);
        runner_->end(place, order.signal);
    }
    if (order.signal == SIGKILL) co_return;
    Timer timer(io_, config_.grace);
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (error) co_return;
    for (const auto& [place, process] : meant) {
        const auto found = processes_.find(place);
        if (found != processes_.end() && found->second == process) runner_->end(place, SIGKILL);
    }
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
        for (const auto& service : services_)
            if (auto offered = service->offer(world, slot, offer); !offered) co_return offered;
        requests.push_back({generation, slot.rank, slot.place, command_for(world, slot, offer)});
    }
    for (const ranks::RankRunner::Request& request : requests) {
        co_await runner_->cleared(request.place);
        if (!wanted(request.place)) continue;
        processes_[request.place] = ++last_process_;
        if (is_elastic()) rejoins_.started(request.place, generation, request.rank);
        runner_->start(request, [this, generation](ranks::RankRunner::Start start) {
            rank_started(std::move(start), generation);
        });
        co_await asio::post(io_, asio::use_awaitable);
    }
    co_return Result<void>{};
}

/// What a rank runs and where, without all that is made for it.
ranks::RankCommand Agent::bare_command(Rank rank) const {
    if (config_.programs.empty())
        return {.path = preflight_.program,
                .argv = config_.argv,
                .env = {},
                .directory = preflight_.directory};
    const std::size_t index = program_of(config_.programs, rank);
    const ProgramHere& here = preflight_.programs[index];
    return {.path = here.path,
            .argv = config_.programs[index].argv,
            .env = {},
            .directory = here.directory};
}

ranks::RankCommand Agent::command_for(const Assign& world, const RankSlot& slot,
                                      const ranks::RankOffer& offer) {
    contracts::Environment env = preflight_.env;
    contracts::ContractFacts facts = facts_;
    facts.error_file = offer.error_file;
    facts.mpi = offer.mpi;
    if (offer.horovod_port != 0) facts.horovod_port = offer.horovod_port;
    if (!offer.threads.empty()) facts.threads = offer.threads;
    const contracts::ContractVariables contract =
        contracts::contract_variables(world, slot, facts, preflight_.env);
    for (const auto& [name, value] : contract.defaults) env.try_emplace(name, value);
    for (const auto& [name, value] : contract.fixed) env[name] = value;
    if (config_.ranks_min > 0 && has_accelerators()) keep_devices(slot, env);
    ranks::RankCommand command = bare_command(slot.rank);
    bool lacks_library = preflight_.lacks_library;
    if (!config_.programs.empty()) {
        const std::size_t index = program_of(config_.programs, slot.rank);
        for (const auto& [name, value] : config_.programs[index].env) env[name] = value;
        env["PWD"] = command.directory;
        lacks_library = preflight_.programs[index].lacks_library;
    }
    if (!programs_.empty()) add_to_path(programs_, env);
    if (!package_.empty()) add_to_python_path(package_, config_.horovod_shim, env);
    if (lacks_library) add_to_library_path(package_, env);
    if (config_.rank_macros)
        command.argv = ranks::RankMacros::of_program(world, slot).replace(std::move(command.argv));
    command.wants_input = config_.stdin_target.includes(slot.rank);
    command.inherited = offer.mpi.pmi_fd;
    command.own_session = offer.mpi.mpich;  // MPICH waits by spinning
    command.descriptor_limit = descriptor_limit_;
    command.cpus = offer.cpus;
    if (config_.has_terminal(slot.rank)) {
        command.terminal = config_.terminal_size;
        command.own_session = true;
    }
    command.env.reserve(env.size());
    for (const auto& [name, value] : env) command.env.push_back(name + "=" + value);
    add_debugger(command, slot);
    preflight_.wrappers.apply(command, slot, config_.host_name, env);
    if (config_.standby > 0) command.late = contracts::names_of_rank(contract);
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
    if (start.executed) {
        RankPid running{.rank = start.rank, .place = start.place, .pid = start.pid};
        for (const auto& service : services_) service->started(running);
        if (!wanted && !running.binding.empty())
            tell_user(fmt::format("rank {}: {}", running.rank, running.binding));
        if (wanted) start_->started.ranks.push_back(std::move(running));
        tell_debugger(start.rank);
        streams_->add(start);
    } else {
        Exited exited;
        exited.generation = generation;
        exited.rank = start.rank;
        exited.place = start.place;
        exited.code = start.executed.error().code == Errc::not_found ? 127 : 126;
        exited.error = start.executed.error().message;
        processes_.erase(start.place);
        rejoins_.ended(start.place);
        tell_end(exited, "could not be started");
    }
    if (wanted && --start_->missing == 0) all_started();
}

/// All have executed their programs, or could not.
void Agent::all_started() {
    const Start start = *std::exchange(start_, std::nullopt);
    link_->send(encode(start.started));
    nested_watch_.begin(Clock::now());
    load_.sample(Clock::now());
    say_alive();
    if (is_elastic() && !std::exchange(said_severing_, true))
        if (const std::string why = ranks::why_no_reset(); !why.empty())
            link_->send(encode(ResetStatus{assign_.generation, 0, why}));
    for (const auto& [type, payload] : start.deferred) {
        const auto handled = handle({type, payload});
        if (!handled) return leave(handled.error().message);
    }
}

/// The ranks of the generation are not wanted any more, nor those of the coming one, nor is what came for
/// them.
void Agent::forget_start() {
    preparing_.places.clear();
    if (!start_) return;
    const Start start = *std::exchange(start_, std::nullopt);
    for (const auto& [type, payload] : start.deferred) {
        const auto input = decode<Input>(payload);
        if (type == FrameType::input && input)
            link_->send(encode(InputCredit{input->bytes.size()}));
    }
}

}  // namespace dtrun::agent
