#include "launcher/plan/programs.h"

#include "hostfiles/host_spec.h"

#include <algorithm>

namespace dtrun::plan {

bool has_own_hosts(const Options& options) {
    return options.parts.size() > 1 && !options.parts.back().hosts.empty();
}

std::string all_hosts_words(const Options& options) {
    if (!has_own_hosts(options)) return options.hosts;
    std::string words;
    for (const ProgramPart& part : options.parts) words += (words.empty() ? "" : ",") + part.hosts;
    return words;
}

Result<Placement> place_programs(const Options& options) {
    HostList all;
    std::vector<int> host_of;  // by rank
    for (const ProgramPart& part : options.parts) {
        const auto hosts = parse_hosts(part.hosts);
        if (!hosts) return std::unexpected(hosts.error());
        const auto placed =
            place_ranks(*hosts, {part.ranks, options.map_by, options.oversubscribe});
        if (!placed) return fail(placed.error(), "{}", part.argv.front());
        std::vector<int> index;  // of the program's hosts, among all
        for (const Host& host : placed->hosts) {
            auto known = std::ranges::find(all, host.name, &Host::name);
            if (known == all.end())
                known = all.insert(known, host);
            else
                known->slots += host.slots;
            index.push_back(static_cast<int>(known - all.begin()));
        }
        for (const RankPlace& place : placed->ranks)
            host_of.push_back(index[static_cast<std::size_t>(place.host)]);
    }
    return place_on(all, std::move(host_of));
}

Result<std::vector<PlannedProgram>> plan_programs(const Options& options, EnvironmentView caller,
                                                  const std::string& directory) {
    std::vector<PlannedProgram> programs;
    for (const ProgramPart& part : options.parts) {
        auto env = variables_of(part, caller);
        if (!env) return std::unexpected(env.error());
        PlannedProgram& program = programs.emplace_back();
        program.argv = part.argv;
        program.env = std::move(*env);
        program.ranks = part.ranks.value_or(0);
        if (part.wdir.empty()) continue;
        auto named = whole_directory(part.wdir, directory);
        if (!named) return std::unexpected(named.error());
        program.directory = std::move(*named);
    }
    return programs;
}

Result<std::string> whole_directory(const std::string& wdir, const std::string& from) {
    if (wdir.starts_with('/')) return wdir;
    if (!from.empty()) return from + "/" + wdir;
    return fail(Errc::invalid_input,
                "--wdir: {} is relative, and the directory in which dtrun was started has been "
                "removed",
                wdir);
}

}  // namespace dtrun::plan
