#include "launcher/frontends/torchrun_rendezvous.h"

#include "base/strings.h"
#include "launcher/cli/elastic_rows.h"
#include "launcher/cli/setters.h"
#include "launcher/plan/allocation_here.h"
#include "launcher/plan/machine_facts.h"

namespace dtrun::frontends {
namespace {

constexpr int kTorchPort = 29'500;  // --master-port's default
/// From --master-port, where rank 0 serves torch's store, to the port where nodes meet.
constexpr int kMeetingOffset = 1'000;
constexpr std::chrono::seconds kServingNodeTimeout{5};  // for a connection to it that broke

/// Whether --master-addr and --master-port are where the ranks meet, as they are for torchrun.
bool meets_at_master(const TorchrunArgs& words) {
    const bool is_static = words.backend.empty() || words.backend == "static";
    return is_static && words.endpoint.empty() && !words.standalone;
}

bool are_hosts_named(const plan::Options& options) {
    return !options.hosts.empty() || !options.hostfile.empty();
}

/// Whether the job may have hosts other than this machine.
bool has_hosts(const ParsedTorchrun& parsed, plan::EnvironmentView environment) {
    const plan::Options& options = parsed.options;
    if (are_hosts_named(options) || !parsed.elastic.discovery_script.empty()) return true;
    if (options.transport == plan::Transport::local) return false;
    // Inside a rank the allocation belongs to the job around us.
    return !plan::find_variable(environment, "DTRUN_RANK") && plan::has_allocation(environment);
}

/// Whether the same command runs on every node: there are several, but only their meeting point is named.
bool is_typed_on_each(const ParsedTorchrun& parsed) {
    const TorchrunArgs& words = parsed.own;
    const bool known =
        words.backend.empty() || words.backend == "static" || words.backend == "c10d";
    const bool several = !words.nodes.empty() && parsed.options.shape.hosts_max > 1;
    const bool meets = !words.endpoint_host.empty() || !words.master_addr.empty();
    return known && several && meets && !words.standalone;
}

/// The flags given that say where ranks meet, which dtrun does not need.
/// \param at_endpoint  nodes meet there indeed
std::vector<std::string> rendezvous_words(const TorchrunArgs& words, bool at_endpoint) {
    std::vector<std::string> given;
    const bool known =
        words.backend.empty() || words.backend == "static" || words.backend == "c10d";
    if (!known) given.push_back("--rdzv-backend " + words.backend);
    if (!words.endpoint.empty() && !at_endpoint) given.emplace_back("--rdzv-endpoint");
    const bool master = meets_at_master(words);
    if (!words.master_addr.empty() && !master) given.emplace_back("--master-addr");
    if (words.master_port && !master) given.emplace_back("--master-port");
    if (!words.local_addr.empty()) given.emplace_back("--local-addr");
    return given;
}

/// Adds notes on flags without effect, which are shown only if the flags cause no error.
void add_notes(const TorchrunArgs& words, std::vector<std::string>& notes,
               bool at_endpoint = false) {
    const auto given =
        words.standalone ? std::vector<std::string>{} : rendezvous_words(words, at_endpoint);
    if (!given.empty())
        notes.push_back(
            fmt::format("{} {} no effect: dtrun brings the ranks together itself, on an address "
                        "and a free port of its own choice",
                        join_names(given), given.size() == 1 ? "has" : "have"));
    if (!words.unused_conf.empty())
        notes.push_back(fmt::format(
            "--rdzv-conf: {} {} no effect; --start-timeout, --elastic-timeout and "
            "--heartbeat-timeout say how long dtrun waits",
            join_names(words.unused_conf), words.unused_conf.size() == 1 ? "has" : "have"));
    if (!words.unforwarded.empty())
        notes.push_back(fmt::format("--signals-to-handle: dtrun does not forward {}",
                                    join_names(words.unforwarded)));
}

/// What the same command on every node would look like, and what to write instead.
void describe_by_hand(const ParsedTorchrun& parsed, plan::HostShape& shape) {
    const TorchrunArgs& words = parsed.own;
    std::vector<std::string> given;
    if (words.node_rank) given.push_back(fmt::format("--node-rank {}", *words.node_rank));
    if (!words.endpoint.empty()) given.push_back("--rdzv-endpoint " + words.endpoint);
    if (!words.master_addr.empty()) given.push_back("--master-addr " + words.master_addr);
    shape.by_hand = join_names(given);
    shape.not_first = words.node_rank.value_or(0) > 0;
    shape.meets_at = words.endpoint_host.empty() ? words.master_addr : words.endpoint_host;
    const std::string nodes = words.nodes.empty() ? "" : "--nnodes " + words.nodes + " ";
    shape.one_command = fmt::format(
        "write `dtrun torchrun {}-H HOST1,HOST2,...` on one machine, which starts all nodes; or "
        "this command on each, with --rdzv-endpoint ONE-OF-THEM",
        nodes);
}

Result<void> set_standalone(ParsedTorchrun& parsed) {
    plan::Options& options = parsed.options;
    if (are_hosts_named(options))
        return fail(Errc::invalid_input, "--standalone is this machine alone; leave {} out",
                    options.hosts.empty() ? "--hostfile" : "-H");
    if (options.shape.hosts_min > 1)
        return fail(Errc::invalid_input, "--standalone is one node, not --nnodes {}",
                    parsed.own.nodes);
    options.transport = plan::Transport::local;
    return {};
}

/// How many ranks this machine has as one node of a job.
Result<int> ranks_here(const plan::HostShape& shape, plan::EnvironmentView environment) {
    using enum plan::HostShape::Count;
    if (shape.count == number) return shape.number;
    if (shape.count == plan::HostShape::Count::slots) return 1;
    const plan::MachineFacts here = plan::machine_facts(environment);
    if (shape.count == cpu || (shape.count == automatic && here.gpus == 0)) return here.cpus;
    if (here.gpus > 0) return here.gpus;
    return fail(Errc::invalid_input, "{}: this machine shows no NVIDIA GPU", shape.count_flag);
}

/// Fails for flags of elastic jobs that a daemon's job does not have.
Result<void> check_limits(const ParsedTorchrun& parsed) {
    const std::span<const cli::Flag> flags = torchrun_flags().flags();
    for (const cli::GivenFlag& given : parsed.given) {
        const cli::Flag& flag = flags[given.row];
        if (flag.group != cli::FlagGroup::elastic || flag.in.has(cli::FlagScope::join)) continue;
        return fail(Errc::invalid_input,
                    "{} has no effect where nodes enter a job by themselves, only in one that a "
                    "single dtrun launches; leave it out",
                    given.name);
    }
    return {};
}

/// These are the ranks of one node of a daemon's job.
Result<void> set_join(ParsedTorchrun& parsed, plan::JoinOptions join,
                      plan::EnvironmentView environment) {
    plan::Options& options = parsed.options;
    const TorchrunArgs& words = parsed.own;
    if (!parsed.on_rank_failure.empty())
        return fail(
            Errc::invalid_input,
            "--on-rank-failure has no effect where nodes enter a job by themselves; --nnodes "
            "MIN:MAX and --max-restarts say what a failure means");
    if (options.init_timeout)
        return fail(
            Errc::invalid_input,
            "--init-timeout has no effect where nodes enter a job by themselves, only in one "
            "that a single dtrun launches; leave it out");
    if (const auto done = check_limits(parsed); !done) return done;
    const auto per_node = ranks_here(options.shape, environment);
    if (!per_node) return std::unexpected(per_node.error());
    const plan::HostShape& shape = options.shape;
    const bool given = !words.nodes.empty();
    const long long max = static_cast<long long>(*per_node) * (given ? shape.hosts_max : 1);
    if (max > kRanksMax)
        return fail(Errc::invalid_input, "--nnodes and --nproc-per-node ask for {} ranks, of {}",
                    max, kRanksMax);
    join.daemon.encrypt = options.encrypt;
    join.ranks_min = *per_node * (given ? shape.hosts_min : 1);
    join.ranks_max = static_cast<int>(max);
    join.limits = parsed.elastic;
    join.limits.rank_failure_limit = options.max_restarts;
    if (words.join_timeout && !parsed.elastic_timeout_given)
        join.limits.timeout = *words.join_timeout;
    if (words.last_call) join.last_call = *words.last_call;
    options.world_size = *per_node;
    options.shape = {};
    options.join = std::move(join);
    return {};
}

/// --rdzv-backend dtrun: the daemon is there already.
Result<void> join_daemon(ParsedTorchrun& parsed, plan::EnvironmentView environment) {
    plan::Options& options = parsed.options;
    const TorchrunArgs& words = parsed.own;
    if (are_hosts_named(options))
        return fail(Errc::invalid_input,
                    "--rdzv-backend dtrun starts the ranks of this machine alone; leave {} out",
                    options.hosts.empty() ? "--hostfile" : "-H");
    if (words.run_id.empty())
        return fail(Errc::invalid_input,
                    "--rdzv-backend dtrun: which job of the daemon? --rdzv-id NAME");
    plan::JoinOptions join;
    join.daemon.address = words.endpoint;
    join.daemon.job = words.run_id;
    join.node_rank = words.node_rank;
    return set_join(parsed, std::move(join), environment);
}

/// Nodes meet at one of them, which serves the job.
Result<void> join_by_hand(ParsedTorchrun& parsed, plan::EnvironmentView environment) {
    const TorchrunArgs& words = parsed.own;
    plan::JoinOptions join;
    join.by_hand = true;
    join.daemon.address = words.endpoint;
    join.node_rank = words.node_rank;
    join.serves = words.is_host;
    join.server_timeout = kServingNodeTimeout;
    if (meets_at_master(words)) {
        const int port = words.master_port.value_or(kTorchPort);
        const bool is_v6 = words.master_addr.find(':') != std::string::npos;
        const std::string host = is_v6 ? "[" + words.master_addr + "]" : words.master_addr;
        const bool fits = port + kMeetingOffset <= cli::kPortMax;
        join.daemon.address =
            fmt::format("{}:{}", host, fits ? port + kMeetingOffset : port - kMeetingOffset);
        if (words.node_rank && !join.serves) join.serves = *words.node_rank == 0;
    }
    if (words.endpoint.ends_with(":0"))
        return fail(Errc::invalid_input,
                    "--rdzv-endpoint {}: all nodes must know the port; name one", words.endpoint);
    parsed.options.run_id = words.run_id.empty() ? "none" : words.run_id;  // as torchrun's default
    join.daemon.job = parsed.options.run_id;
    add_notes(words, parsed.options.notes, true);
    return set_join(parsed, std::move(join), environment);
}

}  // namespace

Result<void> set_rendezvous(ParsedTorchrun& parsed, plan::EnvironmentView environment) {
    plan::Options& options = parsed.options;
    const TorchrunArgs& words = parsed.own;
    if (meets_at_master(words)) cli::set_master(options, words.master_addr, words.master_port);
    if (words.backend == "dtrun" && !words.standalone) {
        options.run_id = words.run_id;
        return join_daemon(parsed, environment);
    }
    const bool is_range = options.shape.hosts_min < options.shape.hosts_max && !words.nodes.empty();
    const bool is_typed = is_typed_on_each(parsed);
    const bool hosts_there = (is_range || is_typed) && has_hosts(parsed, environment);
    if (is_typed && !hosts_there) return join_by_hand(parsed, environment);
    add_notes(words, options.notes);
    if (words.standalone) {
        if (const auto done = set_standalone(parsed); !done) return done;
    } else {
        options.run_id = words.run_id;
        describe_by_hand(parsed, options.shape);
    }
    options.shape.elastic = is_range && hosts_there && !words.standalone;
    options.shape.elastic_words = "write --nnodes MIN:MAX, and name the hosts";
    if (words.join_timeout && options.shape.elastic && !parsed.elastic_timeout_given) {
        parsed.elastic.timeout = *words.join_timeout;
        parsed.elastic_timeout_given = true;
        options.start_timeout.reset();
    }
    return cli::add_elastic_hosts(parsed, torchrun_flags().flags(), environment);
}

}  // namespace dtrun::frontends
