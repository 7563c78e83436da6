#include "launcher/head/slurm_step.h"

#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "launcher/transport/agent_script.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>

namespace dtrun::head {
namespace {

// A task that ends while srun has input for it would end the whole step, so one that fails reads on. `dtrun_beside` is the
// agent beside dtrun, which nodes may see; `dtrun_come` is "go", or how many bytes follow: the agents of all CPUs that lack
// one, of which a node takes its own, from `dtrun_from` on. `dtrun_first` is the name of the node's home, among nodes of its
// CPU.
constexpr std::string_view kNodeScript = R"sh(
    dtrun_host=$SLURMD_NODENAME; dtrun_names; dtrun_job=$dtrun_job-$dtrun_machine; dtrun_from=0;
    dtrun_failed() {
        rm -f "$dtrun_new" "$dtrun_cache/.first-$dtrun_job";
        echo "@$dtrun_host dtrun-agent-failed $*"; exec cat >/dev/null;
    };
    dtrun_get() {
        [ "$dtrun_come" = "$dtrun_bytes" ] && { head -c "$dtrun_bytes"; return; };
        head -c "$dtrun_come" >"$dtrun_new.p" &&
        tail -c +$((dtrun_from + 1)) "$dtrun_new.p" | head -c "$dtrun_bytes" && rm -f "$dtrun_new.p";
    };
    if dtrun_is "$dtrun_beside" "$dtrun_build"; then dtrun_agent=$dtrun_beside;
    else dtrun_has "$dtrun_build"; fi;
    dtrun_first=;
    if [ "$dtrun_agent" ]; then echo "@$dtrun_host dtrun-agent-found";
    else
        dtrun_first=$(dtrun_home "$dtrun_host.$$");
        echo "@$dtrun_host dtrun-agent-wanted $dtrun_machine $dtrun_packing $dtrun_first";
    fi;
    read -r dtrun_come dtrun_rest || exit 1; set -- $dtrun_rest;
    until [ "$1" = "$dtrun_machine" ] || [ $# -lt 6 ]; do
        dtrun_from=$((dtrun_from + $3)); shift 6;
    done;
    dtrun_id=$2 dtrun_bytes=$3 dtrun_digest=$4 dtrun_whole=$5 dtrun_packed=$6;
    if [ "$dtrun_come" = go ]; then dtrun_run --node "$dtrun_host"; fi;
    if [ -z "$dtrun_agent" ] && [ "${dtrun_first:-$dtrun_host.$$}" = "$dtrun_host.$$" ] &&
    { dtrun_has "$dtrun_id"; [ -z "$dtrun_agent" ]; }; then
        dtrun_folder; dtrun_e=$({ umask 077; dtrun_get >"$dtrun_new"; } 2>&1) ||
        dtrun_no "$dtrun_e";
        dtrun_store; "$dtrun_agent" --prepare </dev/null >/dev/null 2>&1;
    else
        [ "$dtrun_agent" ] && [ -L "$dtrun_cache/.first-$dtrun_job" ] &&
        rm -f "$dtrun_cache/.first-$dtrun_job";
        head -c "$dtrun_come" >/dev/null;
    fi;
    echo "@$dtrun_host dtrun-agent-stored"; read -r dtrun_come || exit 1;
    [ "$dtrun_agent" ] || dtrun_stored "$dtrun_id" || dtrun_sees "$dtrun_id" ||
    dtrun_failed "another node has stored the agent in $dtrun_cache, where this one does not see it";
    dtrun_run --node "$dtrun_host"
)sh";

/// Whether the nodes of the allocation have different numbers of GPUs.
bool gpus_differ(const plan::JobSpec& spec) {
    const auto& nodes = spec.access.allocation->nodes;
    return std::ranges::adjacent_find(nodes, std::ranges::not_equal_to{},
                                      &Allocation::Node::gpus) != nodes.end();
}

}  // namespace

std::vector<std::vector<HostId>> step_groups(const plan::JobSpec& spec) {
    std::map<int, std::vector<HostId>> components;
    std::vector<std::vector<HostId>> groups;
    for (const HostId host : spec.hosts.hosts()) {
        if (spec.hosts[host].transport != plan::Transport::slurm) continue;
        if (gpus_differ(spec))
            groups.push_back({host});
        else
            components[spec.hosts[host].node.het_group].push_back(host);
    }
    for (auto& [component, hosts] : components) groups.push_back(std::move(hosts));
    return groups;
}

std::vector<std::string> srun_command(const plan::JobSpec& spec, std::span<const HostId> hosts,
                                      const std::string& command) {
    const Allocation::Node& node = spec.hosts[hosts.front()].node;
    std::vector<std::string> names;
    for (const HostId host : hosts) names.push_back(spec.hosts[host].host.name);
    std::vector<std::string> argv{
        "srun", fmt::format("--nodes={}", hosts.size()), fmt::format("--ntasks={}", hosts.size()),
        "--ntasks-per-node=1", "--nodelist=" + compress_nodelist(names), "--overlap", "--mpi=none",
        "--cpu-bind=none", "--export=ALL", "--chdir=/",
        // Agents are not the job: what one exits with does not end the others.
        "--kill-on-bad-exit=0", "--wait=0"};
    // The others go on when a node fails.
    if (spec.options.elastic || spec.options.recovers_itself) argv.push_back("--no-kill");
    const auto in_component = [](const Allocation::Node& other) { return other.het_group > 0; };
    if (std::ranges::any_of(spec.access.allocation->nodes, in_component))
        argv.push_back(fmt::format("--het-group={}", node.het_group));
    // `--gres` for a single node may not ask for more than the job's other nodes have.
    if (node.gpus > 0)
        argv.push_back(fmt::format("--{}{}", gpus_differ(spec) ? "gpus=" : "gres=gpu:", node.gpus));
    argv.insert(argv.end(), {"/bin/sh", "-c", command});
    return argv;
}

std::string tasks_per_node(std::span<const int> counts) {
    std::string text;
    for (std::size_t i = 0; i < counts.size();) {
        const auto end = std::find_if(counts.begin() + static_cast<std::ptrdiff_t>(i), counts.end(),
                                      [&](int count) { return count != counts[i]; });
        const auto times = static_cast<std::size_t>(end - counts.begin()) - i;
        text += fmt::format("{}{}", text.empty() ? "" : ",", counts[i]);
        if (times > 1) text += fmt::format("(x{})", times);
        i += times;
    }
    return text;
}

std::string node_agent_command(const transport::AgentFile& agent, const std::string& copying) {
    return fmt::format("dtrun_beside={}; dtrun_build={}; dtrun_job={}; {}{}{}{}",
                       shell_quote(agent.path), agent.build_id, copying,
                       transport::one_line(transport::kFindAgent),
                       transport::one_line(transport::kStoreAgent), transport::kPacking,
                       transport::one_line(kNodeScript));
}

// "slurmstepd-s1: error: *** STEP 27.0 ON s1 CANCELLED AT 2026-11-27T00:55:27 DUE TO TIME LIMIT ***"; "srun: Job step
// aborted: Waiting up to 7 seconds for job step to finish."; "srun: error: s[1-2]: tasks 0-1: Killed".
StepEnding step_ending(std::string_view said) {
    constexpr std::string_view kError = "srun: error: ";
    constexpr std::string_view kKilled = ": Killed";
    constexpr std::string_view kAborted = "Job step aborted";
    constexpr std::string_view kStep = "*** STEP ";
    constexpr std::string_view kCancelled = " CANCELLED AT ";
    constexpr std::string_view kCause = " DUE ";  // "TO …", or "to …"
    using How = StepEnding::How;
    StepEnding ending;
    const auto found = [&ending](How how, std::string text) {
        if (how > ending.how) ending = {how, std::move(text)};
    };
    for (const std::string_view line : split(said, '\n')) {
        if (line.starts_with(kError) && trim(line).ends_with(kKilled))
            found(How::killed, fmt::format("srun says {}", trim(line.substr(kError.size()))));
        if (line.find(kAborted) != std::string_view::npos)
            found(How::aborted, "Slurm has aborted the step in which the agents ran");
        const auto at = line.find(kStep);
        if (at == std::string_view::npos || line.find(kCancelled) == std::string_view::npos)
            continue;
        const std::string_view id = line.substr(at + kStep.size());
        std::string text = fmt::format("Slurm has cancelled step {}", id.substr(0, id.find(' ')));
        if (const auto cause = line.find(kCause); cause != std::string_view::npos) {
            text += " due ";
            const std::string_view why = line.substr(cause + kCause.size());
            for (const char c : trim(why.substr(0, why.find_first_of(",*"))))
                text += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        }
        found(How::cancelled, std::move(text) + ", in which the agents ran");
    }
    return ending;
}

void StepEndings::hear(std::string_view said, Deadline now) {
    StepEnding ending = step_ending(said);
    if (ending.text.empty() || ending.how < ending_.how) return;
    ending_ = std::move(ending);
    heard_ = now;
}

void StepEndings::job_runs(Deadline now) {
    if (now - heard_ > kOutlived) ending_ = {};
}

std::optional<NodeLine> parse_node_line(std::string_view line) {
    const std::size_t blank = line.find(' ');
    if (!line.starts_with('@') || blank == std::string_view::npos) return {};
    return NodeLine{line.substr(1, blank - 1), line.substr(blank + 1)};
}

}  // namespace dtrun::head
