// Allocations of PBS, LSF, SGE, OAR and Cobalt, which hand over a list of hosts in a file or in a
// variable, and of Flux, which has to be asked.

#include "base/strings.h"
#include "hostfiles/allocation_parts.h"
#include "hostfiles/nodelist.h"

namespace dtrun {

namespace {

constexpr std::string_view kInstead = "or name the hosts with -H";

std::vector<Token> words_of(std::string_view line) {
    std::vector<Token> words = split_outside_brackets(line, " \t\r\v\f");
    std::erase_if(words, [](const Token& word) { return word.text.empty(); });
    return words;
}

Result<void> add_host(HostMerger& hosts, std::string_view name, int slots,
                      const Position& position) {
    const auto pattern = NamePattern::parse(name, position);
    if (!pattern) return std::unexpected(pattern.error());
    Host host;
    host.slots = slots;
    return hosts.add(*pattern, host, position);
}

/// How the lines of a file name hosts.
enum class Line {
    slot,        ///< `host`, once for each slot
    host_slots,  ///< `host slots` and more words
};

Result<HostList> parse_node_file(std::string_view text, std::string_view name, Line form) {
    HostMerger hosts(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
    Position position{name, 0};
    bool any = false;
    for (const std::string_view line : split(text, '\n')) {
        ++position.line;
        const auto words = words_of(line);
        if (words.empty()) continue;
        int slots = 1;
        if (form == Line::host_slots) {
            const std::string_view count = words.size() > 1 ? words[1].text : "";
            const Position at = position.after(words.size() > 1 ? words[1].offset : line.size());
            const auto number = parse_slots(count, at, "'host 4'");
            if (!number) return std::unexpected(number.error());
            slots = *number;
        }
        const auto added = add_host(hosts, words[0].text, slots, position.after(words[0].offset));
        if (!added) return std::unexpected(added.error());
        any = true;
    }
    if (!any) return fail_at(Position{name}, "no hosts in the file; name them with -H");
    return hosts.take();
}

/// The allocation that a file describes.
/// \param job  variable with the job's id, if there is one
FoundAllocation read_node_file(const AllocationInput& input, Scheduler scheduler,
                               const std::optional<SchedulerVariable>& job,
                               const SchedulerVariable& file, Line form) {
    const std::string path(file.text);
    const auto text = input.file(path);
    if (!text) return fail(text.error(), "{} (correct it, {})", file.shown(), kInstead);
    const std::string name = escaped(path, path.size());
    auto hosts = parse_node_file(*text, name, form);
    if (!hosts) return std::unexpected(hosts.error());
    Allocation allocation;
    allocation.scheduler = scheduler;
    if (job) allocation.job = job->text;
    allocation.hosts = std::move(*hosts);
    allocation.hosts_source = file.shown();
    allocation.slots_source = file.shown();
    return finished(std::move(allocation), Position{name});
}

/// Reads a list of hosts and slots, "h1 4 h2 2".
FoundAllocation read_mcpu_hosts(const SchedulerVariable& job, const SchedulerVariable& list) {
    const auto words = words_of(list.text);
    HostMerger hosts(words.size() / 2);
    for (std::size_t i = 0; i < words.size(); i += 2) {
        const bool has_count = i + 1 < words.size();
        const Position at =
            list.position().after(has_count ? words[i + 1].offset : list.text.size());
        const auto slots = parse_slots(has_count ? words[i + 1].text : "", at, "'host 4'");
        if (!slots) return std::unexpected(slots.error());
        const Position position = list.position().after(words[i].offset);
        const auto added = add_host(hosts, words[i].text, *slots, position);
        if (!added) return std::unexpected(added.error());
    }
    Allocation allocation;
    allocation.scheduler = Scheduler::lsf;
    allocation.job = job.text;
    allocation.hosts = hosts.take();
    allocation.hosts_source = list.shown();
    allocation.slots_source = list.shown();
    return finished(std::move(allocation), list.position());
}

/// One slot on each of `names`.
Result<HostList> one_slot_each(std::span<const std::string> names, const Position& position) {
    HostMerger hosts(names.size());
    for (const std::string& name : names) {
        const auto added = hosts.add(NamePattern::verbatim(name), {}, position);
        if (!added) return std::unexpected(added.error());
    }
    return hosts.take();
}

/// A block partition of a Cray, "12-14,20": the nodes nid00012, nid00013, ...
Result<std::vector<std::string>> partition_nodes(const SchedulerVariable& partition) {
    std::string list;
    std::size_t offset = 0;
    for (const std::string_view token : split(partition.text, ',')) {
        const std::size_t dash = token.find('-');
        const std::string_view low = token.substr(0, dash);
        const std::string_view high = dash == token.npos ? low : token.substr(dash + 1);
        const auto first = to_int(low, 0, 99'999);
        const auto last = to_int(high, 0, 99'999);
        if (!first || !last || token.starts_with('-') || *first > *last)
            return fail_at(partition.position().after(offset),
                           "{} is not a node number or a range of them such as 12-14; name the "
                           "hosts with -H",
                           in_quotes(token));
        list += fmt::format("{}{:05}-{:05}", list.empty() ? "nid[" : ",", *first, *last);
        offset += token.size() + 1;
    }
    return expand_nodelist(list + "]", partition.name);
}

}  // namespace

FoundAllocation find_pbs(const AllocationInput& input) {
    const auto file = find_variable(input, {"PBS_NODEFILE"});
    if (!file) return std::nullopt;
    auto found = read_node_file(input, Scheduler::pbs, find_variable(input, {"PBS_JOBID"}), *file,
                                Line::slot);
    // Of the host where the script runs; `select=1:ncpus=28` lists it once.
    const auto cpus = find_variable(input, {"NCPUS"});
    if (found && *found && cpus && (*found)->hosts.size() == 1)
        (*found)->nodes[0].cpus = static_cast<int>(to_int(cpus->text, 0, kSlotsMax).value_or(0));
    return found;
}

FoundAllocation find_lsf(const AllocationInput& input) {
    const auto job = find_variable(input, {"LSB_JOBID"});
    if (!job) return std::nullopt;
    if (const auto file = find_variable(input, {"LSB_DJOB_HOSTFILE"}))
        return read_node_file(input, Scheduler::lsf, job, *file, Line::slot);
    if (const auto list = find_variable(input, {"LSB_MCPU_HOSTS"}))
        return read_mcpu_hosts(*job, *list);
    return fail_at(job->position(),
                   "an LSF job, but neither LSB_DJOB_HOSTFILE nor LSB_MCPU_HOSTS is set; name the "
                   "hosts with -H, or unset LSB_JOBID");
}

FoundAllocation find_sge(const AllocationInput& input) {
    const auto file = find_variable(input, {"PE_HOSTFILE"});
    if (!file) return std::nullopt;
    return read_node_file(input, Scheduler::sge, find_variable(input, {"JOB_ID"}), *file,
                          Line::host_slots);
}

FoundAllocation find_oar(const AllocationInput& input) {
    const auto file = find_variable(input, {"OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES"});
    if (!file) return std::nullopt;
    return read_node_file(input, Scheduler::oar, find_variable(input, {"OAR_JOB_ID", "OAR_JOBID"}),
                          *file, Line::slot);
}

FoundAllocation find_cobalt(const AllocationInput& input) {
    const auto job = find_variable(input, {"COBALT_JOBID"});
    if (const auto file = find_variable(input, {"COBALT_NODEFILE"}))
        return read_node_file(input, Scheduler::cobalt, job, *file, Line::slot);
    const auto partition = find_variable(input, {"COBALT_PARTNAME"});
    if (!job || !partition) return std::nullopt;
    const auto names = partition_nodes(*partition);
    if (!names) return std::unexpected(names.error());
    auto hosts = one_slot_each(*names, partition->position());
    if (!hosts) return std::unexpected(hosts.error());
    Allocation allocation;
    allocation.scheduler = Scheduler::cobalt;
    allocation.job = job->text;
    allocation.hosts = std::move(*hosts);
    allocation.hosts_source = partition->shown();
    allocation.slots_source = "one rank on each host";
    return finished(std::move(allocation), partition->position());
}

/// A batch script has FLUX_URI alone; a task of `flux run` has FLUX_JOB_SIZE and FLUX_TASK_RANK too
/// (flux-environment(7)). Neither is told its hosts.
FoundAllocation find_flux(const AllocationInput& input) {
    const auto uri = find_variable(input, {"FLUX_URI"});
    if (!uri || !input.command) return std::nullopt;
    constexpr std::string_view kCommand = "flux hostlist local";
    const auto list = input.command({"flux", "hostlist", "local"});
    if (!list)
        return fail(list.error(), "{} ({} tells its hosts; name them with -H, or unset FLUX_URI)",
                    uri->shown(), kCommand);
    const auto names = expand_nodelist(*list, kCommand);
    if (!names) return std::unexpected(names.error());
    auto hosts = one_slot_each(*names, Position{kCommand});
    if (!hosts) return std::unexpected(hosts.error());
    Allocation allocation;
    allocation.scheduler = Scheduler::flux;
    allocation.hosts = std::move(*hosts);
    allocation.hosts_source = fmt::format("{}: {}", kCommand, escaped(trim(*list)));
    allocation.slots_source = "one rank on each host";
    if (const auto job = find_variable(input, {"FLUX_JOB_ID"})) allocation.job = job->text;
    if (const auto size = find_variable(input, {"FLUX_JOB_SIZE"})) {
        const auto ranks = number_of(*size, 1, kRanksMax);
        if (!ranks) return std::unexpected(ranks.error());
        const auto spread =
            spread_evenly(allocation.hosts, static_cast<int>(*ranks), size->position());
        if (!spread) return std::unexpected(spread.error());
        allocation.slots_source = size->shown() + ", spread over the hosts";
        const auto rank = find_variable(input, {"FLUX_TASK_RANK"});
        allocation.is_bystander = *ranks > 1 && rank && rank->text != "0";
    }
    return finished(std::move(allocation), Position{kCommand});
}

}  // namespace dtrun
