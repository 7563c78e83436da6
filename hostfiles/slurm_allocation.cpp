// Slurm's allocation, read as srun would: sbatch(1) and srun(1), "OUTPUT ENVIRONMENT VARIABLES".

#include "base/strings.h"
#include "hostfiles/allocation_parts.h"
#include "hostfiles/nodelist.h"

#include <unordered_map>

namespace dtrun {

namespace {

constexpr long long kStepMax = 0xffff'ffff;
constexpr long long kFirstPlaceStep = 0xffff'fff0;  // interactive, batch, extern: no parallel step
constexpr int kHetGroupsMax = 128;
constexpr int kCpusMax = 1'000'000;

using Counts = std::vector<int>;

/// One item of a list of counts, "4(x2)": the count, and for how many nodes it holds.
struct RepeatedCount {
    int count = 0;
    std::size_t nodes = 1;
};

std::optional<RepeatedCount> parse_repeated(std::string_view text, int max) {
    const std::size_t open = std::min(text.find("(x"), text.size());
    const auto count = to_int(text.substr(0, open), 0, max);
    if (!count) return std::nullopt;
    RepeatedCount parsed{static_cast<int>(*count), 1};
    if (open == text.size()) return parsed;
    if (!text.ends_with(')')) return std::nullopt;
    const auto nodes = to_int(text.substr(open + 2, text.size() - open - 3), 1, kHostsMax);
    if (!nodes) return std::nullopt;
    parsed.nodes = static_cast<std::size_t>(*nodes);
    return parsed;
}

/// One number for each node, in Slurm's form "4(x2),3".
/// \param nodes  how many there must be
Result<Counts> parse_counts(const SchedulerVariable& variable, std::size_t nodes, int max) {
    Counts counts;
    std::size_t offset = 0;
    for (const std::string_view token : split(variable.text, ',')) {
        const Position position = variable.position().after(offset);
        offset += token.size() + 1;
        const auto parsed = parse_repeated(token, max);
        if (!parsed)
            return fail_at(position,
                           "{} is not a count from 0 to {}, or one for several nodes such as "
                           "4(x2); unset {} and name the hosts with -H",
                           in_quotes(token), max, variable.name);
        if (parsed->nodes > nodes - counts.size())
            return fail_at(position, "counts for more than the {} nodes; name the hosts with -H",
                           nodes);
        counts.insert(counts.end(), parsed->nodes, parsed->count);
    }
    if (counts.size() != nodes)
        return fail_at(variable.position().after(variable.text.size()),
                       "counts for {} nodes, but there are {}; name the hosts with -H",
                       counts.size(), nodes);
    return counts;
}

/// GPUs of a node in the form "2", "a100:2" or "a100:2,v100:1".
Result<int> parse_gpus(const SchedulerVariable& variable) {
    long long sum = 0;
    std::size_t offset = 0;
    for (const std::string_view token : split(variable.text, ',')) {
        const auto count = to_int(token.substr(token.rfind(':') + 1), 0, kSlotsMax);
        if (count) sum += *count;
        if (!count || sum > kSlotsMax)
            return fail_at(variable.position().after(offset),
                           "{} is not a number of GPUs up to {} such as 4 or a100:4; unset it",
                           in_quotes(token), kSlotsMax);
        offset += token.size() + 1;
    }
    return static_cast<int>(sum);
}

/// One component of a job; the only one, unless the job is heterogeneous.
struct Component {
    HostList hosts;
    std::vector<Allocation::Node> nodes;
    int world_size = 0;
    int cpus_per_rank = 0;
    std::string hosts_source;
    std::string slots_source;
    std::string world_size_source;
};

/// Reads one component. Inside a step the step's variables come first.
class ComponentReader {
public:
    /// \param suffix  suffix of all variables' names: "", or "_HET_GROUP_1"
    ComponentReader(const AllocationInput& input, std::string suffix, bool in_step)
        : input_(input), suffix_(std::move(suffix)), in_step_(in_step) {}

    Result<Component> read();

private:
    std::optional<SchedulerVariable> find(std::initializer_list<std::string_view> names) const;
    std::optional<SchedulerVariable> tasks_per_node() const;
    Result<void> read_hosts();
    Result<void> read_cpus();
    Result<void> read_gpus();
    void ask_for_gpus();
    Result<void> read_cpus_per_rank();
    Result<void> read_given_size(const SchedulerVariable& size);
    Result<void> read_host_file(const SchedulerVariable& file);
    Result<void> read_implied_size();
    Result<void> read_room();
    void set_slots(const Counts& slots, std::string source);

    const AllocationInput& input_;
    std::string suffix_;
    bool in_step_ = false;
    std::optional<int> gpus_per_node_;
    Component component_;
};

std::optional<SchedulerVariable> ComponentReader::find(
    std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names)
        if (auto found = find_variable(input_, {std::string(name) + suffix_})) return found;
    return std::nullopt;
}

std::optional<SchedulerVariable> ComponentReader::tasks_per_node() const {
    return in_step_ ? find({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
                    : find({"SLURM_TASKS_PER_NODE"});
}

Result<Component> ComponentReader::read() {
    if (const auto ok = read_hosts(); !ok) return std::unexpected(ok.error());
    if (const auto ok = read_cpus(); !ok) return std::unexpected(ok.error());
    if (const auto per_node = find({"SLURM_GPUS_PER_NODE"})) {
        const auto gpus = parse_gpus(*per_node);
        if (!gpus) return std::unexpected(gpus.error());
        gpus_per_node_ = *gpus;
    }
    const auto size = in_step_ ? find({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"})
                               : find({"SLURM_NTASKS", "SLURM_NPROCS"});
    const auto sized = size ? read_given_size(*size) : read_implied_size();
    if (!sized) return std::unexpected(sized.error());
    if (const auto ok = read_room(); !ok) return std::unexpected(ok.error());
    if (const auto ok = read_gpus(); !ok) return std::unexpected(ok.error());
    if (const auto ok = read_cpus_per_rank(); !ok) return std::unexpected(ok.error());
    return std::move(component_);
}

Result<void> ComponentReader::read_hosts() {
    const auto list = in_step_
                          ? find({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
                          : find({"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (!list)
        return fail(Errc::invalid_input,
                    "SLURM_JOB_NODELIST{0}: not set, though SLURM_JOB_ID is; name the hosts with "
                    "-H, or unset SLURM_JOB_ID",
                    suffix_);
    const auto names = expand_nodelist(list->text, list->name);
    if (!names) return std::unexpected(names.error());
    component_.hosts.resize(names->size());
    for (std::size_t i = 0; i < names->size(); ++i)
        component_.hosts[i].name = std::move((*names)[i]);
    component_.nodes.resize(component_.hosts.size());
    component_.hosts_source = list->shown();
    return {};
}

/// SLURM_JOB_CPUS_PER_NODE lists the whole job's nodes; a step may have fewer, so CPUs are looked
/// up by node name.
Result<void> ComponentReader::read_cpus() {
    const auto variable = find({"SLURM_JOB_CPUS_PER_NODE"});
    const auto list = find({"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (!variable || !list) return {};
    const auto names = expand_nodelist(list->text, list->name);
    if (!names) return std::unexpected(names.error());
    const auto cpus = parse_counts(*variable, names->size(), kCpusMax);
    if (!cpus) return in_step_ ? Result<void>{} : std::unexpected(cpus.error());
    std::unordered_map<std::string_view, int> by_name;
    for (std::size_t i = 0; i < names->size(); ++i) by_name.emplace((*names)[i], (*cpus)[i]);
    for (std::size_t i = 0; i < component_.hosts.size(); ++i) {
        const auto found = by_name.find(component_.hosts[i].name);
        if (found != by_name.end()) component_.nodes[i].cpus = found->second;
    }
    return {};
}

void ComponentReader::set_slots(const Counts& slots, std::string source) {
    for (std::size_t i = 0; i < slots.size(); ++i) component_.hosts[i].slots = slots[i];
    component_.slots_source = std::move(source);
}

Result<void> ComponentReader::read_given_size(const SchedulerVariable& size) {
    const auto ranks = number_of(size, 1, kRanksMax);
    if (!ranks) return std::unexpected(ranks.error());
    component_.world_size = static_cast<int>(*ranks);
    component_.world_size_source = size.shown();
    if (const auto variable = tasks_per_node()) {
        const auto slots = parse_counts(*variable, component_.hosts.size(), kSlotsMax);
        if (!slots) return std::unexpected(slots.error());
        set_slots(*slots, variable->shown());
        return {};
    }
    // Only the distribution `-m arbitrary` sets no counts: they are in a file.
    if (const auto file = find({"SLURM_HOSTFILE"})) return read_host_file(*file);
    const auto spread = spread_evenly(component_.hosts, component_.world_size, size.position());
    component_.slots_source = size.shown() + ", spread over the nodes";
    return spread;
}

/// Reads a file with one host name for each rank, "name*4" for four, separated by commas, blanks or
/// line ends.
Result<void> ComponentReader::read_host_file(const SchedulerVariable& file) {
    const std::string path(file.text);
    const auto text = input_.file(path);
    if (!text)
        return fail(text.error(), "{} (correct it, or name the hosts with -H)", file.shown());
    HostMerger hosts(component_.hosts.size());
    const std::string name = escaped(path, path.size());
    Position position{name, 0};
    for (const std::string_view line : split(*text, '\n')) {
        ++position.line;
        for (const Token& token :
             split_outside_brackets(line.substr(0, line.find('#')), ", \t\r")) {
            if (token.text.empty()) continue;
            const Position at = position.after(token.offset);
            const std::size_t star = std::min(token.text.find('*'), token.text.size());
            const auto names = NamePattern::parse(token.text.substr(0, star), at);
            if (!names) return std::unexpected(names.error());
            Host host;
            if (star < token.text.size()) {
                const auto slots =
                    parse_slots(token.text.substr(star + 1), at.after(star + 1), "name*4");
                if (!slots) return std::unexpected(slots.error());
                host.slots = *slots;
            }
            if (const auto added = hosts.add(*names, host, at); !added) return added;
        }
    }
    HostList counted = hosts.take();
    if (counted.empty()) return fail_at(Position{name}, "no hosts in the file; name them with -H");
    component_.hosts = std::move(counted);
    component_.nodes.assign(component_.hosts.size(), {});  // CPU counts have another order
    component_.hosts_source = file.shown();
    component_.slots_source = file.shown();
    return {};
}

/// Sets as many ranks as srun starts by default, but one for each GPU where GPUs are known.
Result<void> ComponentReader::read_implied_size() {
    int each = 1;
    std::string source = "one rank on each node, as srun has it";
    if (const auto variable = find({"SLURM_NTASKS_PER_NODE"})) {
        const auto number = number_of(*variable, 1, kSlotsMax);
        if (!number) return std::unexpected(number.error());
        each = static_cast<int>(*number);
        source = variable->shown();
    } else if (gpus_per_node_.value_or(0) > 0) {
        each = *gpus_per_node_;
        source = find({"SLURM_GPUS_PER_NODE"})->shown();
    } else if (const auto gpus = find({"SLURM_GPUS_ON_NODE"});
               gpus && component_.hosts.size() == 1) {
        const auto number = parse_gpus(*gpus);
        if (!number) return std::unexpected(number.error());
        each = std::max(*number, 1);
        if (*number > 0) source = gpus->shown();
    }
    set_slots(Counts(component_.hosts.size(), each), source);
    const long long ranks =
        static_cast<long long>(each) * static_cast<long long>(component_.hosts.size());
    if (ranks > kRanksMax)
        return fail(Errc::invalid_input, "{}: {} ranks are too many; a job has at most {}", source,
                    ranks, kRanksMax);
    component_.world_size = static_cast<int>(ranks);
    component_.world_size_source = std::move(source);
    return {};
}

/// Sets slots_max to how many ranks fit: Slurm's tasks per node, else the node's CPUs.
Result<void> ComponentReader::read_room() {
    Counts room;
    if (const auto variable = tasks_per_node()) {
        auto counts = parse_counts(*variable, component_.hosts.size(), kSlotsMax);
        if (!counts) return std::unexpected(counts.error());
        room = std::move(*counts);
    } else {
        for (const Allocation::Node& node : component_.nodes)
            room.push_back(std::min(node.cpus, kSlotsMax));
    }
    for (std::size_t i = 0; i < room.size(); ++i)
        if (room[i] > component_.hosts[i].slots) component_.hosts[i].slots_max = room[i];
    return {};
}

Result<void> ComponentReader::read_gpus() {
    const auto per_task = find({"SLURM_GPUS_PER_TASK"});
    const auto on_this_node = find({"SLURM_GPUS_ON_NODE"});
    std::vector<Allocation::Node>& nodes = component_.nodes;
    if (gpus_per_node_) {
        for (Allocation::Node& node : nodes) node.gpus = *gpus_per_node_;
    } else if (per_task) {
        const auto gpus = parse_gpus(*per_task);
        if (!gpus) return std::unexpected(gpus.error());
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const long long all = static_cast<long long>(*gpus) * component_.hosts[i].slots;
            nodes[i].gpus = static_cast<int>(std::min<long long>(all, kSlotsMax));
        }
    } else if (on_this_node && nodes.size() == 1) {
        const auto gpus = parse_gpus(*on_this_node);
        if (!gpus) return std::unexpected(gpus.error());
        nodes[0].gpus = *gpus;
    } else if (find({"SLURM_GPUS"}) && input_.command) {
        ask_for_gpus();
    }
    return {};
}

/// Asks scontrol for each node's GPUs: with a total (`--gpus=3`) Slurm's variables tell only those
/// of the batch script's node. scontrol prints "Nodes=n[1-2] CPU_IDs=0-1 Mem=0
/// GRES=gpu:a100:2(IDX:0-1)". If it prints nothing, GPUs stay unknown.
void ComponentReader::ask_for_gpus() {
    const auto job = find({"SLURM_JOB_ID", "SLURM_JOBID"});
    if (!job) return;
    const auto said =
        input_.command({"scontrol", "show", "job", "-d", "-o", std::string(job->text)});
    if (!said) return;
    std::unordered_map<std::string, int> by_name;
    std::vector<std::string> names;
    for (const std::string_view word : split(*said, ' ')) {
        if (word.starts_with("Nodes=")) {
            names = expand_nodelist(word.substr(6)).value_or(std::vector<std::string>{});
        } else if (word.starts_with("GRES=gpu:")) {
            const std::string_view gpus = word.substr(9, word.find('(') - 9);
            const auto count = to_int(gpus.substr(gpus.rfind(':') + 1), 0, kSlotsMax);
            for (const std::string& name : names)
                by_name[name] = static_cast<int>(count.value_or(0));
        }
    }
    for (std::size_t i = 0; i < component_.hosts.size(); ++i)
        if (const auto found = by_name.find(component_.hosts[i].name); found != by_name.end())
            component_.nodes[i].gpus = found->second;
}

Result<void> ComponentReader::read_cpus_per_rank() {
    const auto variable = find({"SLURM_CPUS_PER_TASK"});
    if (!variable) return {};
    const auto cpus = number_of(*variable, 0, kCpusMax);
    if (!cpus) return std::unexpected(cpus.error());
    component_.cpus_per_rank = static_cast<int>(*cpus);
    return {};
}

/// Puts the components of a job together.
class SlurmJob {
public:
    explicit SlurmJob(std::string_view id) {
        allocation_.scheduler = Scheduler::slurm;
        allocation_.job = id;
    }

    /// Adds a component. A host of several components gets the slots and CPUs of all of them, but
    /// only the GPUs of the first.
    Result<void> add(Component component, int group);

    Result<Allocation> finish(const Position& position) {
        allocation_.world_size_source = join_names(world_size_sources_);
        allocation_.hosts_source = join_names(hosts_sources_);
        allocation_.slots_source = join_names(slots_sources_);
        return finished(std::move(allocation_), position);
    }

private:
    Allocation allocation_;
    std::unordered_map<std::string, std::size_t> by_name_;
    std::vector<std::string> hosts_sources_;
    std::vector<std::string> slots_sources_;
    std::vector<std::string> world_size_sources_;
};

Result<void> SlurmJob::add(Component component, int group) {
    for (std::size_t i = 0; i < component.hosts.size(); ++i) {
        Host& host = component.hosts[i];
        Allocation::Node& node = component.nodes[i];
        node.het_group = group;
        const auto [found, is_new] = by_name_.emplace(host.name, allocation_.hosts.size());
        if (is_new) {
            allocation_.hosts.push_back(std::move(host));
            allocation_.nodes.push_back(node);
            continue;
        }
        Host& first = allocation_.hosts[found->second];
        Allocation::Node& first_node = allocation_.nodes[found->second];
        if (first.slots_max || host.slots_max)
            first.slots_max =
                first.slots_max.value_or(first.slots) + host.slots_max.value_or(host.slots);
        first.slots += host.slots;
        first_node.cpus += node.cpus;  // GPUs stay those of the first component
        if (std::max(first.slots, first.slots_max.value_or(0)) > kSlotsMax)
            return fail(Errc::invalid_input, "{}: the slots of host {} add up to more than {}",
                        component.slots_source, in_quotes(first.name), kSlotsMax);
    }
    if (allocation_.hosts.size() > kHostsMax)
        return fail(Errc::invalid_input, "{}: more than {} hosts; name the hosts with -H",
                    component.hosts_source, kHostsMax);
    const long long ranks = static_cast<long long>(allocation_.world_size) + component.world_size;
    if (ranks > kRanksMax)
        return fail(Errc::invalid_input, "{}: {} ranks are too many; a job has at most {}",
                    component.world_size_source, ranks, kRanksMax);
    allocation_.world_size = static_cast<int>(ranks);
    if (group == 0) allocation_.cpus_per_rank = component.cpus_per_rank;
    if (component.cpus_per_rank != allocation_.cpus_per_rank) allocation_.cpus_per_rank = 0;
    hosts_sources_.push_back(std::move(component.hosts_source));
    slots_sources_.push_back(std::move(component.slots_source));
    world_size_sources_.push_back(std::move(component.world_size_source));
    return {};
}

/// The parallel step in which this process runs, if any.
struct Step {
    bool parallel = false;
    bool bystander = false;
};

// SLURM_PROCID and the like are set in the batch script's shell, too: only the step's number tells
// a parallel step from it.
Result<Step> read_step(const AllocationInput& input) {
    const auto id = find_variable(input, {"SLURM_STEP_ID", "SLURM_STEPID"});
    if (!id) return Step{};
    const auto number = number_of(*id, 0, kStepMax);
    if (!number) return std::unexpected(number.error());
    if (*number >= kFirstPlaceStep) return Step{};
    Step step{true, false};
    const auto tasks = find_variable(input, {"SLURM_STEP_NUM_TASKS"});
    const auto rank = find_variable(input, {"SLURM_PROCID"});
    if (!tasks || !rank) return step;
    const auto count = number_of(*tasks, 1, kRanksMax);
    if (!count) return std::unexpected(count.error());
    const auto own = number_of(*rank, 0, kRanksMax);
    if (!own) return std::unexpected(own.error());
    step.bystander = *count > 1 && *own != 0;
    return step;
}

/// Number of components; 1 for a job that is not heterogeneous.
Result<int> het_size(const AllocationInput& input) {
    const auto size = find_variable(input, {"SLURM_HET_SIZE"});
    if (!size) return 1;
    const auto number = number_of(*size, 1, kHetGroupsMax);
    if (!number) return std::unexpected(number.error());
    return static_cast<int>(*number);
}

/// A step over several components names all its nodes at once: finds the component of each.
void find_components(const AllocationInput& input, int groups, Allocation& allocation) {
    std::unordered_map<std::string, int> group_of;
    for (int group = groups - 1; group >= 0; --group) {
        const std::string name = fmt::format("SLURM_JOB_NODELIST_HET_GROUP_{}", group);
        const auto list = find_variable(input, {name});
        if (!list) continue;
        const auto names = expand_nodelist(list->text);
        if (!names) continue;
        for (const std::string& host : *names) group_of[host] = group;
    }
    for (std::size_t i = 0; i < allocation.hosts.size(); ++i)
        if (const auto found = group_of.find(allocation.hosts[i].name); found != group_of.end())
            allocation.nodes[i].het_group = found->second;
}

}  // namespace

FoundAllocation find_slurm(const AllocationInput& input) {
    const auto id = find_variable(input, {"SLURM_JOB_ID", "SLURM_JOBID"});
    if (!id) return std::nullopt;
    const auto step = read_step(input);
    if (!step) return std::unexpected(step.error());
    const auto groups = het_size(input);
    if (!groups) return std::unexpected(groups.error());
    SlurmJob job(id->text);
    const bool is_het = *groups > 1 && !step->parallel;  // a step's variables hold all components
    for (int group = 0; group < (is_het ? *groups : 1); ++group) {
        std::string suffix = is_het ? fmt::format("_HET_GROUP_{}", group) : "";
        auto component = ComponentReader(input, std::move(suffix), step->parallel).read();
        if (!component) return std::unexpected(component.error());
        if (const auto added = job.add(std::move(*component), group); !added)
            return std::unexpected(added.error());
    }
    auto allocation = job.finish(id->position());
    if (!allocation) return std::unexpected(allocation.error());
    if (step->parallel && *groups > 1) find_components(input, *groups, *allocation);
    allocation->is_bystander = step->bystander;
    const auto overcommit = find_variable(input, {"SLURM_OVERCOMMIT"});
    allocation->is_overcommitted = overcommit && overcommit->text != "0";
    return std::move(*allocation);
}

}  // namespace dtrun
