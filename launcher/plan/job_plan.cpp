#include "launcher/plan/job_plan.h"

#include "base/log.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "contracts/table.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/host_offer.h"
#include "launcher/plan/job_placement.h"
#include "launcher/plan/programs.h"
#include "rendezvous/wire/modes.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun::plan {
namespace {

/// The index of a host in Slurm's allocation, if we are in one and it is a node of it.
std::optional<std::size_t> find_node(const std::optional<Allocation>& allocation,
                                     const Host& host) {
    if (!allocation || allocation->scheduler != Scheduler::slurm) return {};
    if (!host.user.empty() || host.port != 0 || !host.address.empty()) return {};  // meant for ssh
    const auto found = std::ranges::find(allocation->hosts, host.name, &Host::name);
    if (found == allocation->hosts.end()) return {};
    return static_cast<std::size_t>(found - allocation->hosts.begin());
}

/// How a node of Slurm's allocation is reached where there is no srun, as in many containers.
Result<Transport> without_srun(const Host& host, std::optional<Transport> asked, bool is_here) {
    if (asked == Transport::slurm)
        return fail(Errc::invalid_input, "--transport slurm: there is no srun on PATH");
    if (is_here) return Transport::local;
    return fail(Errc::invalid_input,
                "{} is a node of this Slurm allocation, but there is no srun on PATH (is this a "
                "container?): --transport ssh reaches it by ssh, --transport local has all ranks "
                "here, and by `dtrun join` in a task on each node they meet",
                host.name);
}

Result<Transport> choose_transport(const JobSpec& spec, const Options& options, const Host& host,
                                   transport::LookUp look_up) {
    const bool in_slurm = spec.scheduler && spec.scheduler->scheduler == Scheduler::slurm;
    const bool is_node = find_node(spec.scheduler, host).has_value();
    const auto is_here = [&] { return transport::is_this_machine(host, look_up); };
    if (options.join || options.transport == Transport::local) {
        if (options.join || is_here()) return Transport::local;
        return fail(Errc::invalid_input, "--transport local: {} is another machine", host.name);
    }
    if (options.transport == Transport::slurm && !in_slurm)
        return fail(Errc::invalid_input,
                    "--transport slurm: no Slurm allocation here; start dtrun in sbatch or salloc");
    if (options.transport == Transport::slurm && !is_node)
        return fail(Errc::invalid_input, "--transport slurm: {} is not in the allocation",
                    host.name);
    if (is_node && options.transport != Transport::ssh)
        return spec.has_srun ? Transport::slurm : without_srun(host, options.transport, is_here());
    if (is_here()) return Transport::local;
    return spec.ssh.command.empty() ? Transport::ssh : Transport::ssh_command;
}

/// Whether the user's own ssh leads through another machine.
bool jumps(const std::vector<std::string>& command) {
    return std::ranges::any_of(command, [](const std::string& word) {
        return word.starts_with("-J") || word.find("Proxy") != std::string::npos;
    });
}

/// Finds out how ssh would log into the hosts, and has it do so where dtrun's own log-in cannot.
Result<void> read_ssh_config(JobSpec& spec) {
    std::optional<transport::SshConfig> config;
    if (!transport::is_openssh(spec.ssh)) return {};
    for (JobHost& target : spec.hosts) {
        if (target.transport != Transport::ssh && target.transport != Transport::ssh_command)
            continue;
        if (!config) {
            auto read = transport::SshConfig::read();
            if (!read) return fail(read.error(), "{}", target.host.name);
            config = std::move(*read);
        }
        target.ssh = config->find(target.host, spec.ssh);
        if (jumps(spec.ssh.command)) target.ssh->route = "--ssh-command";
        if (!target.ssh->only_ssh.empty()) target.transport = Transport::ssh_command;
    }
    return {};
}

/// A key that is named must be there: another one would only hide the mistake.
Result<void> check_key(const std::string& file) {
    if (file.empty() || ::access(file.c_str(), R_OK) == 0) return {};
    return fail(Errc::invalid_input, "ssh key {}: {}", file, strerror(errno));
}

/// A program that is not ssh is told only where to, and what to run there: whatever else is asked for, it
/// would not obey.
Result<void> check_ssh_command(const Host& host, const transport::SshOptions& ssh) {
    if (transport::is_openssh(ssh)) return {};
    const int port = host.port != 0 ? host.port : ssh.port;
    const std::string& key = host.identity_file.empty() ? ssh.identity_file : host.identity_file;
    std::string unheard;
    if (port != 0) unheard = fmt::format("port {} (-p)", port);
    if (!key.empty()) unheard = fmt::format("key {} (-i)", key);
    if (ssh.accept_new_host_keys) unheard = "--accept-new-host-keys";
    if (unheard.empty()) return {};
    return fail(
        Errc::invalid_input,
        "--ssh-command: only ssh itself can be told of {}, which {} is to have; write it into "
        "the command, in the way of {}",
        unheard, host.name, ssh.command.front());
}

Result<void> check_ranks(const Options& options, int world_size) {
    if (!discovery_of(options).empty()) return {};  // more ranks may come
    const auto check = [world_size](const char* flag, int rank) -> Result<void> {
        if (rank < world_size) return {};
        return fail(Errc::invalid_input, "{}: rank {} does not exist, the ranks are 0..{}", flag,
                    rank, world_size - 1);
    };
    if (auto done = check("--quiet-ranks", options.quiet_ranks.largest()); !done) return done;
    if (auto done = check("--only-ranks", options.only_ranks.largest()); !done) return done;
    for (const WrapOption& wrap : options.wraps)
        if (auto done = check("--wrap", wrap.ranks.largest()); !done) return done;
    if (auto done = check("--pty", options.pty.value_or(-1)); !done) return done;
    if (auto done = check("--debug-rank", options.debug_rank.value_or(-1)); !done) return done;
    if (options.stdin_target.kind != StdinTarget::Kind::rank) return {};
    return check("--stdin", options.stdin_target.rank);
}

/// How many ranks each host of an elastic job has: all have the same number.
Result<int> ranks_per_host(const HostShape& shape, const Placement& placement) {
    if (placement.hosts.empty() && shape.count == HostShape::Count::number) return shape.number;
    if (placement.hosts.empty())
        return fail(Errc::invalid_input,
                    "{}: no host is listed yet; say as a number how many ranks each will have",
                    shape.hosts_flag);
    std::vector<int> ranks(placement.hosts.size());
    for (const RankPlace& place : placement.ranks) ++ranks[static_cast<std::size_t>(place.host)];
    const int each = ranks.front();
    const auto other = std::ranges::find_if(ranks, [each](int count) { return count != each; });
    if (other != ranks.end())
        return fail(
            Errc::invalid_input,
            "{}: all hosts of an elastic job have the same number of ranks, but {} has {} and {} "
            "has {}; say how many each has",
            shape.hosts_flag, placement.hosts.front().name, each,
            placement.hosts[static_cast<std::size_t>(other - ranks.begin())].name, *other);
    return each;
}

/// Says in ranks what an elastic job asks for in hosts.
Result<void> count_ranks(Options& options, const Placement& placement) {
    const HostShape& shape = options.shape;
    if (!options.elastic || !shape.elastic) return {};
    const auto each = ranks_per_host(shape, placement);
    if (!each) return std::unexpected(each.error());
    ElasticOptions& elastic = *options.elastic;
    elastic.ranks_per_host = *each;
    elastic.ranks_min = *each * shape.hosts_min;
    elastic.ranks_max = *each * std::min(shape.hosts_max, kRanksMax / *each);
    if (elastic.allowed.empty()) return {};
    const auto asked = fmt::format("{}", fmt::join(elastic.allowed, ","));
    std::erase_if(elastic.allowed, [&elastic, each = *each](int size) {
        return size % each != 0 || size < *elastic.ranks_min || size > *elastic.ranks_max;
    });
    if (!elastic.allowed.empty()) return {};
    return fail(Errc::invalid_input,
                "{} hosts of {} ranks have none of the numbers of ranks that are allowed: {}",
                shape.hosts_flag, *each, asked);
}

/// Fails if the hosts can never have as many ranks as the job needs.
Result<void> check_elastic(const Options& options, const Placement& placement) {
    if (!options.elastic || !discovery_of(options).empty()) return {};
    const int slots = placement.world_size();
    const auto check = [slots](const char* flag, int ranks) -> Result<void> {
        if (ranks <= slots) return {};
        return fail(Errc::invalid_input, "{} {}: the hosts have only {}", flag, ranks,
                    plural(static_cast<unsigned>(slots), "slot"));
    };
    if (auto done = check("--min-np", options.elastic->ranks_min.value_or(1)); !done) return done;
    return check("-np", options.world_size.value_or(1));
}

/// Warns of a loopback MASTER_ADDR, at which each host finds only itself.
void warn_of_loopback(const Placement& placement, const std::vector<Options::Variable>& asked) {
    const auto master = std::ranges::find(asked, "MASTER_ADDR", &Options::Variable::first);
    if (placement.hosts.size() < 2 || master == asked.end()) return;
    boost::system::error_code error;
    const auto address = asio::ip::make_address(master->second, error);
    if (master->second != "localhost" && (error || !address.is_loopback())) return;
    log::warn(
        "MASTER_ADDR={}: ranks on {} will not find rank 0 there, which is on {}; leave it out",
        master->second, placement.hosts[1].name, placement.hosts[0].name);
}

/// Shows the notes of a front end, and warns of flags that turn out to have no effect.
void tell(const Options& options, const Placement& placement,
          const std::vector<Options::Variable>& asked) {
    for (const std::string& note : options.notes) log::warn("{}", note);
    const std::vector<std::uint32_t>& filter = options.rank_output.local_ranks;
    const auto is_shown = [&filter](const RankPlace& place) {
        return std::ranges::find(filter, static_cast<std::uint32_t>(place.local_rank)) !=
               filter.end();
    };
    if (!filter.empty() && std::ranges::none_of(placement.ranks, is_shown))
        log::warn("--local-ranks-filter: no rank has such a local rank, so none is shown");
    warn_of_loopback(placement, asked);
    const auto is_quiet = [&options](const RankPlace& place) {
        return options.quiet_ranks.contains(place.rank) ||
               (!options.only_ranks.empty() && !options.only_ranks.contains(place.rank));
    };
    if (!placement.ranks.empty() && std::ranges::all_of(placement.ranks, is_quiet))
        log::warn("--only-ranks and --quiet-ranks leave no rank whose output is shown");
    if (options.store_given.value_or(TorchStore::rank0) == TorchStore::rank0) return;
    for (const char* const name : {"MASTER_ADDR", "MASTER_PORT"}) {
        if (std::ranges::find(asked, name, &Options::Variable::first) == asked.end()) continue;
        log::warn("--store {} has no effect: rank 0 serves torch's store where {} is given",
                  options.store_given == TorchStore::proxy ? "proxy" : "agent", name);
        return;
    }
}

Result<void> add_contracts(JobSpec& spec, const Options& options, bool in_slurm) {
    auto contracts = contracts::effective_contracts(options.contracts, in_slurm);
    if (!contracts) return fail(contracts.error(), "--contract");
    spec.contracts = std::move(*contracts);
    const auto ranks = static_cast<std::uint32_t>(std::max(spec.placement.world_size(), 1));
    if (auto done = contracts::check_contracts(spec.contracts, ranks); !done)
        return fail(done.error(), "--contract");
    if (options.join && contracts::needs_nodes(spec.contracts))
        return fail(Errc::invalid_input,
                    "--contract: one of these names all hosts, which only a job that one dtrun "
                    "launches knows; leave it out with dtrun join");
    return {};
}

/// Drops an inherited list of devices where ranks get their slots as devices and the user chose
/// these: it would name others.
void drop_inherited_devices(EnvironmentPlan& plan, const Options& options, const JobSpec& spec) {
    static constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES";
    const bool chosen = !options.hosts.empty() || !options.hostfile.empty() ||
                        !options.include.empty() || !options.exclude.empty() ||
                        !discovery_of(options).empty() || options.shape.devices_chosen;
    if (!chosen || std::ranges::find(spec.contracts, "devices") == spec.contracts.end()) return;
    const auto is_it = [](const Options::Variable& variable) { return variable.first == kName; };
    if (std::ranges::any_of(plan.added, is_it)) return;
    std::erase_if(plan.local, is_it);
    std::erase_if(plan.remote, is_it);
}

/// Puts the working directory first in PYTHONPATH if any rank is on another machine, as DeepSpeed
/// does; a value that the user has given for this job stays.
void add_to_pythonpath(JobSpec& spec) {
    constexpr std::string_view kName = "PYTHONPATH";
    const auto is_local = [](const JobHost& host) { return host.transport == Transport::local; };
    const auto is_asked = std::ranges::find(spec.env_added, kName, &Options::Variable::first);
    const bool stays_local = std::ranges::all_of(spec.hosts, is_local) && !spec.discovers_hosts();
    if (stays_local || is_asked != spec.env_added.end()) return;
    const auto add_to = [&spec, kName](std::vector<Options::Variable>& env) {
        const auto at = std::ranges::lower_bound(env, kName, {}, &Options::Variable::first);
        if (at == env.end() || at->first != kName)
            env.emplace(at, kName, spec.directory);
        else
            at->second = spec.directory + (at->second.empty() ? "" : ":" + at->second);
    };
    for (JobHost& host : spec.hosts) add_to(host.env);
    for (auto* const env : {&spec.environment_here, &spec.environment_there}) add_to(*env);
}

/// torch's own clients do not encrypt: with --encrypt they stay on their hosts, unless the user has chosen.
/// In an elastic job the store must not end with the host of rank 0.
void choose_store(Options& options, const JobSpec& spec) {
    const bool has_network = spec.hosts.size() > 1 || options.join || spec.discovers_hosts();
    const bool by_default = !options.store_given && options.torch_store == TorchStore::agent;
    const bool near = options.encrypt || options.elastic;
    if (near && has_network && by_default) options.torch_store = TorchStore::proxy;
}

/// Decides how a host is reached, and what its ranks get.
Result<JobHost> make_host(const JobSpec& spec, const Options& options, const Host& host,
                          transport::LookUp look_up) {
    if (auto done = check_key(host.identity_file); !done) return std::unexpected(done.error());
    JobHost target;
    target.host = host;
    const auto node = find_node(spec.scheduler, host);
    const auto transport = choose_transport(spec, options, host, look_up);
    if (!transport) return std::unexpected(transport.error());
    target.transport = *transport;
    if (target.transport == Transport::ssh_command && !options.mpirun)
        if (auto done = check_ssh_command(host, spec.ssh); !done)
            return std::unexpected(done.error());
    if (node) target.node = spec.scheduler->nodes[*node];
    target.env =
        target.transport == Transport::local ? spec.environment_here : spec.environment_there;
    return target;
}

}  // namespace

std::size_t JobSpec::program_of(SlotId rank) const {
    std::size_t next = 0;  // the first rank of the program behind
    for (std::size_t i = 0; i < programs.size(); ++i) {
        next += static_cast<std::size_t>(programs[i].ranks);
        if (std::to_underlying(rank) < next) return i;
    }
    return 0;
}

Result<HostId> list_host(JobSpec& spec, const Host& host) {
    const auto hosts = spec.hosts.hosts();
    const auto named = [&spec, &host](HostId id) { return spec.hosts[id].host.name == host.name; };
    const auto found = std::ranges::find_if(hosts, named);
    const bool is_new = found == hosts.end();
    const HostId id = is_new ? static_cast<HostId>(spec.hosts.size()) : *found;
    if (is_new) {
        auto target = make_host(spec, spec.options, host, transport::LookUp::none);
        if (!target) return std::unexpected(target.error());
        spec.hosts.push_back(std::move(*target));
        spec.placement.hosts.push_back(host);
    }
    std::vector<SlotId>& ranks = spec.hosts[id].ranks;
    while (std::cmp_less(ranks.size(), host.slots)) {
        RankPlace place;
        place.rank = spec.placement.world_size();
        place.host = static_cast<int>(id);
        place.slot = place.local_rank = static_cast<int>(ranks.size());
        ranks.push_back(static_cast<SlotId>(place.rank));
        spec.placement.ranks.push_back(place);
    }
    return id;
}

Result<JobSpec> make_job_spec(Options options, EnvironmentView caller, std::string directory) {
    JobSpec spec;
    auto offer = find_hosts(options, caller);
    if (!offer) return std::unexpected(offer.error());
    auto placement = place_job(options, *offer, caller);
    if (!placement) return std::unexpected(placement.error());
    spec.placement = std::move(*placement);
    if (auto done = count_ranks(options, spec.placement); !done)
        return std::unexpected(done.error());
    if (auto done = check_elastic(options, spec.placement); !done)
        return std::unexpected(done.error());
    if (auto done = check_ranks(options, spec.placement.world_size()); !done)
        return std::unexpected(done.error());
    auto environment = plan_environment(caller, options);
    if (!environment) return std::unexpected(environment.error());
    if (offer->from_allocation) share_processors(*offer->allocation, spec.placement, *environment);

    spec.ssh = {options.ssh_port, options.ssh_identity_file, options.accept_new_host_keys,
                shell_words(options.ssh_command).value_or(std::vector<std::string>{})};
    if (auto done = check_key(options.ssh_identity_file); !done)
        return std::unexpected(done.error());
    const bool in_slurm = offer->allocation && offer->allocation->scheduler == Scheduler::slurm;
    if (options.mpirun) {
        // What ranks get besides is mpirun's business.
    } else if (auto done = add_contracts(spec, options, in_slurm); !done) {
        return std::unexpected(done.error());
    }
    drop_inherited_devices(*environment, options, spec);
    const bool is_bystander = offer->from_allocation && offer->allocation->is_bystander;
    if (in_slurm && offer->from_allocation && !options.mpirun)
        if (std::string note = follow_slurm(options.binding, caller); !note.empty())
            options.notes.push_back(std::move(note));
    if (!is_bystander) tell(options, spec.placement, environment->added);
    if (in_slurm) {
        const std::vector<Allocation::Node>& nodes = offer->allocation->nodes;
        const auto any = [&](auto differs) { return std::ranges::any_of(nodes, differs); };
        spec.heterogeneous = any([](const Allocation::Node& n) { return n.het_group > 0; });
        spec.gpus_differ =
            any([&](const Allocation::Node& n) { return n.gpus != nodes.front().gpus; });
        spec.srun_env = srun_environment(caller);
        spec.has_srun = !find_variable(caller, "PATH") || is_on_path("srun", caller);
    }
    spec.sources = std::move(offer->sources);
    spec.environment_here = std::move(environment->local);
    spec.environment_there = std::move(environment->remote);
    spec.scheduler = std::move(offer->allocation);
    spec.discovery = discovery_of(options);
    auto look_up = transport::LookUp::own_names;
    for (const Host& host : spec.placement.hosts) {
        const auto began = std::chrono::steady_clock::now();
        auto target = make_host(spec, options, host, look_up);
        // A resolver that does not answer is not waited for once more for each host.
        if (std::chrono::steady_clock::now() - began >= transport::kLookUpLimit)
            look_up = transport::LookUp::none;
        if (!target) return std::unexpected(target.error());
        spec.hosts.push_back(std::move(*target));
    }
    if (!options.mpirun)  // whose ssh finds out by itself
        if (auto done = read_ssh_config(spec); !done) return std::unexpected(done.error());
    for (const RankPlace& place : spec.placement.ranks)
        spec.hosts[host_of(place)].ranks.push_back(static_cast<SlotId>(place.rank));
    spec.env_added = std::move(environment->added);
    const bool is_only_shown =
        options.join && options.join->by_hand && options.plan != PlanFormat::none;
    if (options.join && !is_only_shown) {
        auto daemon = options.join->by_hand ? find_rendezvous(*options.join, caller)
                                            : find_daemon(options.join->daemon, caller);
        if (!daemon) return std::unexpected(daemon.error());
        if (daemon->job.empty())
            return fail(Errc::invalid_input, "which job? --job NAME, or DTRUN_JOB_NAME");
        spec.daemon = std::move(*daemon);
    }
    if (offer->from_allocation) spec.allocation = spec.scheduler;
    spec.directory_required = !options.wdir.empty();
    spec.directory = directory;
    if (spec.directory_required) {
        auto named = whole_directory(options.wdir, directory);
        if (!named) return std::unexpected(named.error());
        spec.directory = std::move(*named);
    }
    auto programs = plan_programs(options, caller, directory);
    if (!programs) return std::unexpected(programs.error());
    spec.programs = std::move(*programs);
    if (options.directory_in_pythonpath) add_to_pythonpath(spec);
    choose_store(options, spec);
    spec.options = std::move(options);
    return spec;
}

}  // namespace dtrun::plan
