#include "launcher/commands/print_plan.h"

#include "base/log.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "hostfiles/nodelist.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json.hpp>
#include <map>

namespace dtrun::commands {
namespace {

namespace json = boost::json;

/// How ranks get onto a host.
std::string_view way_to(const plan::JobSpec& spec, const plan::JobHost& host) {
    return spec.options.mpirun ? "mpirun" : name_of(host.transport);
}

/// Whether to show variables' values: plans are shown to others, and variables hold tokens.
bool shows_values(const plan::JobSpec& spec) {
    return spec.options.verbosity >= log::Level::verbose;
}

std::string address_of(const Host& host) {
    return host.address.empty() ? host.name : host.address;
}

std::string command_text(const std::vector<std::string>& argv) {
    std::string text;
    for (const std::string& word : argv) text += (text.empty() ? "" : " ") + shell_quote(word);
    return text;
}

/// "0-3" or "4".
std::string ranks_text(int first, int count) {
    return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

std::string programs_text(const plan::JobSpec& spec) {
    if (spec.programs.empty()) return "command:    " + command_text(spec.options.program) + "\n";
    std::string text;
    int first = 0;
    for (const plan::PlannedProgram& program : spec.programs) {
        std::string variables;
        for (const auto& [name, value] : program.env)
            variables +=
                fmt::format("{}={} ", name, shows_values(spec) ? shell_quote(value) : "...");
        text += fmt::format("command:    {}{}   (rank{} {}{}{})\n", variables,
                            command_text(program.argv), program.ranks == 1 ? "" : "s",
                            ranks_text(first, program.ranks),
                            program.directory.empty() ? "" : ", in ", program.directory);
        first += program.ranks;
    }
    return text;
}

json::array programs_json(const plan::JobSpec& spec) {
    json::array programs;
    for (const plan::PlannedProgram& program : spec.programs) {
        json::object environment;
        for (const auto& [name, value] : program.env)
            environment[name] = shows_values(spec) ? json::value(value) : json::value(nullptr);
        programs.push_back(
            {{"command", json::array(program.argv.begin(), program.argv.end())},
             {"ranks", program.ranks},
             {"directory", program.directory.empty() ? spec.directory : program.directory},
             {"environment", std::move(environment)}});
    }
    return programs;
}

std::string mpirun_text(const mpirun::MpirunPlan& plan) {
    std::string text = fmt::format("mpirun:     {}\nruns:       {}\n", plan.mpirun.name,
                                   mpirun::mpirun_command_text(plan.command));
    std::string_view title = "hostfile:";
    for (const std::string_view line : split(trim(plan.command.hostfile), '\n')) {
        if (!line.empty()) text += fmt::format("{:<12}{}\n", title, line);
        title = "";
    }
    return text;
}

json::object mpirun_json(const mpirun::MpirunPlan& plan) {
    json::object environment;
    for (const auto& [name, value] : plan.command.environment) environment[name] = value;
    return {{"name", plan.mpirun.name},
            {"command", json::array(plan.command.argv.begin(), plan.command.argv.end())},
            {"environment", std::move(environment)},
            {"hostfile", plan.command.hostfile}};
}

std::string binding_text(const PlannedBinding& binding) {
    std::string text;
    if (!binding.asked.empty()) text += fmt::format("binding:    {}\n", binding.asked);
    for (const auto& [rank, place] : binding.here)
        text += fmt::format("            rank {}: {}\n", std::to_underlying(rank), place.text);
    if (!binding.asked.empty() && binding.elsewhere)
        text += fmt::format("            {} hosts decide for their own ranks\n",
                            binding.here.empty() ? "the" : "the other");
    if (!binding.threads_text.empty())
        text += fmt::format("threads:    {}\n", binding.threads_text);
    return text;
}

/// Why hosts are reached by ssh although nobody has asked for that.
std::string reasons_for_ssh(const plan::JobSpec& spec) {
    if (!spec.access.ssh.command.empty()) return {};
    std::map<std::string, std::vector<std::string>> hosts;
    for (const plan::JobHost& host : spec.hosts)
        if (host.ssh && !host.ssh->only_ssh.empty())
            hosts[host.ssh->only_ssh].push_back(host.host.name);
    std::string text;
    for (const auto& [reason, names] : hosts)
        text += fmt::format("by ssh:     {}: {}\n", name_hosts(names), reason);
    return text;
}

json::value text_or_null(const std::optional<std::string>& text) {
    return text ? json::value(*text) : json::value(nullptr);
}

/// Which processors a rank gets; null where its host decides. Only if something was asked for.
void add_binding(json::object& rank, plan::SlotId planned, const PlannedBinding& binding) {
    if (const auto threads = binding.threads.find(planned); threads != binding.threads.end())
        rank["omp_num_threads"] = threads->second;
    if (binding.asked.empty()) return;
    const auto found = binding.here.find(planned);
    if (found == binding.here.end()) {
        rank["cpus"] = nullptr;
        return;
    }
    const PlannedBinding::Place& place = found->second;
    rank["cpus"] = place.cpus;
    rank["numa_nodes"] = json::array(place.numa_nodes.begin(), place.numa_nodes.end());
    rank["gpu"] = text_or_null(place.gpu);
    rank["nic"] = text_or_null(place.nic);
}

std::size_t width_of(const plan::JobSpec& spec, std::size_t least, auto text_of) {
    for (const plan::JobHost& host : spec.hosts) least = std::max(least, text_of(host.host).size());
    return least;
}

}  // namespace

std::string plan_text(const plan::JobSpec& spec, const mpirun::MpirunPlan* mpirun,
                      const PlannedBinding& binding) {
    const auto name_width = width_of(spec, 4, [](const Host& h) { return h.name; });
    const auto address_width = width_of(spec, 7, address_of);
    const auto user_width = width_of(spec, 4, [](const Host& h) { return h.user; });
    std::string text = fmt::format("{} rank{} on {} host{}\n", spec.placement.world_size(),
                                   spec.placement.world_size() == 1 ? "" : "s", spec.hosts.size(),
                                   spec.hosts.size() == 1 ? "" : "s");
    text += fmt::format("{:>6}  {:<{}}  {:>4}  {:>5}  {:>5}  {:<{}}  {:<{}}  {}\n", "rank", "host",
                        name_width, "slot", "local", "cross", "address", address_width, "user",
                        user_width, "by");
    for (const RankPlace& place : spec.placement.ranks) {
        const plan::JobHost& host = spec.hosts[plan::host_of(place)];
        text += fmt::format(
            "{:>6}  {:<{}}  {:>4}  {:>5}  {:>5}  {:<{}}  {:<{}}  {}\n", place.rank, host.host.name,
            name_width, place.slot, fmt::format("{}/{}", place.local_rank, place.local_size),
            fmt::format("{}/{}", place.cross_rank, place.cross_size), address_of(host.host),
            address_width, host.host.user.empty() ? "-" : host.host.user, user_width,
            way_to(spec, host));
    }
    text += fmt::format("hosts:      {}\nslots:      {}\nranks:      {}\n", spec.sources.hosts,
                        spec.sources.slots, spec.sources.world_size);
    text += reasons_for_ssh(spec);
    text += programs_text(spec);
    for (const plan::WrapOption& wrap : spec.options.wraps)
        text += "wrapped by: " + wrap.written + "\n";
    const bool or_home = !spec.directory_required && !spec.options.mpirun;
    text += fmt::format("directory:  {}{}\n", spec.directory,
                        or_home ? " (home on hosts that lack it)" : "");
    if (!spec.contracts.empty())
        text += fmt::format("variables:  those of {} (dtrun help environment)\n",
                            join_names(spec.contracts, spec.contracts.size()));
    for (const auto& [name, value] : spec.environment.added)
        text += fmt::format("env added:  {}={}\n", name,
                            shows_values(spec) ? shell_quote(value) : "...");
    text += binding_text(binding);
    if (mpirun != nullptr) text += mpirun_text(*mpirun);
    return text;
}

std::string plan_json(const plan::JobSpec& spec, const mpirun::MpirunPlan* mpirun,
                      const PlannedBinding& binding) {
    json::object plan;
    plan["schema"] = 1;
    plan["world_size"] = spec.placement.world_size();
    plan["command"] = json::array(spec.options.program.begin(), spec.options.program.end());
    json::array wraps;
    for (const plan::WrapOption& wrap : spec.options.wraps)
        wraps.push_back(json::string(wrap.written));
    if (!wraps.empty()) plan["wrapped_by"] = std::move(wraps);
    plan["directory"] = spec.directory;
    plan["sources"] = {{"hosts", spec.sources.hosts},
                       {"slots", spec.sources.slots},
                       {"world_size", spec.sources.world_size}};
    plan["contracts"] = json::array(spec.contracts.begin(), spec.contracts.end());
    json::object environment;
    for (const auto& [name, value] : spec.environment.added)
        environment[name] = shows_values(spec) ? json::value(value) : json::value(nullptr);
    plan["environment"] = std::move(environment);
    json::array hosts;
    for (const plan::JobHost& host : spec.hosts) {
        json::object row{{"host", host.host.name},     {"slots", host.host.slots},
                         {"ranks", host.ranks.size()}, {"address", address_of(host.host)},
                         {"user", host.host.user},     {"transport", way_to(spec, host)}};
        if (host.host.port != 0) row["port"] = host.host.port;
        if (host.ssh && !host.ssh->only_ssh.empty()) row["only_ssh"] = host.ssh->only_ssh;
        hosts.push_back(std::move(row));
    }
    plan["hosts"] = std::move(hosts);
    json::array ranks;
    for (const RankPlace& place : spec.placement.ranks) {
        const Host& host = spec.hosts[plan::host_of(place)].host;
        ranks.push_back({{"rank", place.rank},
                         {"host", host.name},
                         {"slot", place.slot},
                         {"local_rank", place.local_rank},
                         {"cross_rank", place.cross_rank},
                         {"world_size", spec.placement.world_size()},
                         {"local_size", place.local_size},
                         {"cross_size", place.cross_size},
                         {"address", address_of(host)},
                         {"user", host.user}});
        add_binding(ranks.back().as_object(), plan::SlotId(place.rank), binding);
    }
    if (!binding.asked.empty()) plan["binding"] = binding.asked;
    plan["ranks"] = std::move(ranks);
    if (!spec.programs.empty()) plan["programs"] = programs_json(spec);
    if (mpirun != nullptr) plan["mpirun"] = mpirun_json(*mpirun);
    return as_utf8(json::serialize(plan)) + "\n";  // folders and arguments may have any bytes
}

}  // namespace dtrun::commands
