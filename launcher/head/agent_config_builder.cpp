#include "launcher/head/agent_config_builder.h"

#include "base/crypto.h"
#include "contracts/table.h"
#include "hostfiles/nodelist.h"
#include "launcher/head/job_policy.h"
#include "launcher/head/slurm_step.h"
#include "launcher/output/user_terminal.h"
#include "launcher/plan/binding.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/start_messages.h"

#include <string.h>
#include <algorithm>

namespace dtrun::head {
namespace {

constexpr std::uint32_t kPortsOfMaster = 2;           // MASTER_PORT, and one more for JAX
constexpr std::uint64_t kOutputBytesMax = 64u << 20;  // in flight from all hosts together

/// How many processes a host keeps ready. \param slots  that the host has
std::uint32_t standby_of(const plan::ElasticOptions& asked, int slots) {
    const int wanted = asked.standby.value_or(0);
    return static_cast<std::uint32_t>(wanted > 0 ? wanted : slots);
}

std::vector<JobProgram> programs_of(const plan::JobSpec& spec) {
    std::vector<JobProgram> programs;
    for (const plan::PlannedProgram& planned : spec.programs)
        programs.push_back({planned.argv,
                            planned.env,
                            planned.directory,
                            static_cast<std::uint32_t>(planned.ranks),
                            {}});
    if (programs.empty()) return programs;
    for (const RankPlace& place : spec.placement.ranks)
        programs[spec.program_of(static_cast<plan::SlotId>(place.rank))].hosts.push_back(
            plan::host_of(place));
    for (JobProgram& program : programs) {
        std::ranges::sort(program.hosts);
        program.hosts.erase(std::ranges::unique(program.hosts).begin(), program.hosts.end());
    }
    return programs;
}

Bytes encode_and_wipe(AgentConfig config) {
    Bytes frame = encode(config);
    ::explicit_bzero(config.secret.data(), config.secret.size());
    return frame;
}

}  // namespace

AgentConfigBuilder::AgentConfigBuilder(const plan::JobSpec& spec, const JobCredentials& credentials,
                                       const Hosts& hosts, ServerPlace server)
    : spec_(spec),
      credentials_(credentials),
      hosts_(hosts),
      server_(std::move(server)),
      programs_(programs_of(spec)) {}

void AgentConfigBuilder::prefer(const std::string& address) {
    auto& addresses = server_.addresses;
    const auto known = std::ranges::find(addresses, address);
    if (known != addresses.end()) std::rotate(addresses.begin(), known, known + 1);
}

/// What --wrap and its like ask of agents.
void AgentConfigBuilder::add_looks(AgentConfig& config) const {
    const plan::Options& options = spec_.options;
    if (options.pty) config.terminal_size = output::UserTerminal::size();
    if (options.debug_rank)
        config.debug_host =
            plan::host_of(spec_.placement.ranks[static_cast<std::size_t>(*options.debug_rank)]);
    for (const plan::WrapOption& option : options.wraps) {
        Wrap& wrap = config.wraps.emplace_back();
        wrap.words = option.words;
        for (const plan::RankSet::Range& range : option.ranks.ranges())
            wrap.ranks.push_back(
                {static_cast<std::uint32_t>(range.first), static_cast<std::uint32_t>(range.last)});
    }
}

/// A job may have got more hosts or slots since they were made.
const AgentConfigBuilder::HostLists& AgentConfigBuilder::lists() const {
    if (lists_.hosts == spec_.hosts.size() && lists_.ranks == spec_.placement.ranks.size())
        return lists_;
    std::vector<std::string> names;
    std::vector<int> ranks;
    for (const plan::JobHost& host : spec_.hosts) {
        names.push_back(host.host.name);
        ranks.push_back(static_cast<int>(host.ranks.size()));
    }
    lists_ = {names.size(), spec_.placement.ranks.size(), compress_nodelist(names),
              tasks_per_node(ranks), ranks.empty() ? 0 : std::ranges::max(ranks)};
    return lists_;
}

AgentConfig AgentConfigBuilder::common() const {
    const plan::Options& options = spec_.options;
    AgentConfig config;
    static_cast<JobSettings&>(config) = options;
    config.job_id.assign(credentials_.id.begin(), credentials_.id.end());
    config.secret.assign(credentials_.secret.bytes().begin(), credentials_.secret.bytes().end());
    config.addresses = server_.addresses;
    config.port = server_.port;
    config.store_by_tcp = server_.store_by_tcp;
    config.argv = options.program;
    config.programs = programs_;
    config.directory = spec_.directory;
    config.directory_required = spec_.directory_required;
    const std::uint64_t window = kOutputBytesMax / std::max(hosts_.count(), 1u);
    config.output_window_bytes =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(window, 128u << 10, 4u << 20));
    config.cpus_per_rank = static_cast<std::uint32_t>(spec_.cpus_per_rank);
    config.contracts = spec_.contracts;
    config.nodelist = lists().nodelist;
    config.tasks_per_node = lists().tasks_per_node;
    config.mpi_job = hex(mpi_job());
    config.others_go_on = options.elastic || options.recovers_itself;
    add_looks(config);
    config.binding = plan::binding_request(options);
    const bool needs_nodes = contracts::needs_nodes(spec_.contracts);
    if (options.elastic) {
        const int most = options.elastic->ranks_max.value_or(spec_.placement.world_size());
        config.ranks_min = static_cast<std::uint32_t>(options.elastic->ranks_min.value_or(1));
        config.ranks_max = static_cast<std::uint32_t>(most);
        config.preload = options.elastic->preload;
        if (options.elastic->standby)
            config.standby = standby_of(*options.elastic, lists().ranks_most);
    }
    if (options.join && joined_policy(options).elastic) {
        config.ranks_min = joined_policy(options).ranks_min;
        config.ranks_max = joined_policy(options).sizes.max;
    }
    config.reserve_everywhere = needs_nodes || options.elastic;  // each host may have rank 0 then
    config.reserve_ports = kPortsOfMaster;
    if (needs_nodes) config.reserve_ports += static_cast<std::uint32_t>(lists().ranks_most);
    return config;
}

/// The job's id for MPI, made from its secret: other users of a host, who may see the job's own id in
/// packets, cannot guess it, which is half of what keeps them out of PMIx.
JobId AgentConfigBuilder::mpi_job() const {
    const Secret& secret = spec_.daemon ? spec_.daemon->credentials.secret : credentials_.secret;
    constexpr std::string_view kPurpose = "dtrun mpi";
    const auto bytes = reinterpret_cast<const std::uint8_t*>(kPurpose.data());
    const Sha256 digest = hmac_sha256(secret.bytes(), {std::span(bytes, kPurpose.size())});
    JobId id{};
    std::copy_n(digest.begin(), id.size(), id.begin());
    return id;
}

Bytes AgentConfigBuilder::for_host(HostId host, std::uint64_t agent) const {
    const plan::JobHost& target = spec_.hosts[host];
    AgentConfig config = common();
    config.host = host;
    config.agent = agent;
    config.host_name = target.host.name;
    if (target.transport == plan::Transport::local) {
        config.addresses = {"127.0.0.1"};
        config.head_is_here = true;
        config.store_socket = server_.store_socket;
        config.store_by_tcp = 0;
    }
    const auto parent = hosts_.tree().parent(host);
    if (parent && hosts_[*parent].relay_port != 0) {
        config.addresses = {hosts_[*parent].address};
        config.port = hosts_[*parent].relay_port;
        config.head_is_here = false;
    }
    config.relay = hosts_.tree().is_relay(host);
    config.env = spec_.env_of(target);
    if (target.transport != plan::Transport::local) config.limits = spec_.limits;
    config.binding.ranks = {static_cast<std::uint32_t>(target.ranks.size())};
    if (config.standby > 0)
        config.standby = standby_of(*spec_.options.elastic, static_cast<int>(target.ranks.size()));
    if (host != HostId{0} && !config.reserve_everywhere) config.reserve_ports = 0;
    return encode_and_wipe(std::move(config));
}

Bytes AgentConfigBuilder::for_all_nodes() const {
    AgentConfig config = common();
    for (const plan::JobHost& host : spec_.hosts) {
        const bool is_node = host.transport == plan::Transport::slurm;
        config.nodes.push_back(is_node ? host.host.name : "");
        if (is_node && config.env.empty()) config.env = spec_.env_of(host);
        config.binding.ranks.push_back(static_cast<std::uint32_t>(host.ranks.size()));
    }
    config.limits = spec_.limits;
    return encode_and_wipe(std::move(config));
}

}  // namespace dtrun::head
