#include "launcher/commands/hosts_command.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "hostfiles/filter.h"
#include "hostfiles/host_names.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "hostfiles/hosts_alike.h"
#include "hostfiles/nodelist.h"
#include "launcher/cli/command.h"
#include "launcher/commands/host_survey.h"
#include "launcher/plan/allocation_here.h"
#include "launcher/plan/exit_code.h"
#include "launcher/plan/machine_facts.h"
#include "launcher/transport/host_target.h"

#include <unistd.h>
#include <algorithm>
#include <cstdio>

namespace dtrun::commands {
namespace {

/// A host list, and whether its numbers of slots are a scheduler's.
struct Source {
    HostList hosts;
    bool from_allocation = false;
};

Result<Source> without_allocation(Result<HostList> hosts) {
    if (!hosts) return std::unexpected(hosts.error());
    return Source{std::move(*hosts), false};
}

Result<HostList> hosts_of_nodelist(std::string_view list) {
    const auto names = expand_nodelist(list, "--nodelist");
    if (!names) return std::unexpected(names.error());
    HostList hosts(names->size());
    for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].name = (*names)[i];
    return merge_names(hosts, "--nodelist");
}

/// Piped names win over the environment; nothing piped, as in a batch script whose standard input is
/// /dev/null, leaves it to the environment.
Result<Source> default_source(plan::EnvironmentView environment) {
    const bool piped = ::isatty(STDIN_FILENO) == 0;
    if (piped) {
        const auto text = read_standard_input();
        if (!text) return std::unexpected(text.error());
        if (!trim(*text).empty()) return without_allocation(parse_hostfile(*text, "stdin"));
    }
    auto allocation = plan::allocation_here(environment);
    if (!allocation) return std::unexpected(allocation.error());
    if (!*allocation)
        return fail(Errc::invalid_input,
                    "no hosts: {} and no batch system has given any; pipe names into dtrun hosts, "
                    "or use -H, --hostfile or --nodelist",
                    piped ? "standard input is empty," : "standard input is a terminal,");
    return Source{std::move((*allocation)->hosts), true};
}

Result<Source> read_source(const HostsOptions& command, plan::EnvironmentView environment) {
    if (!command.hosts.empty()) return without_allocation(parse_hosts(command.hosts));
    if (!command.hostfile.empty()) return without_allocation(read_hostfile(command.hostfile));
    if (!command.nodelist.empty()) return without_allocation(hosts_of_nodelist(command.nodelist));
    return default_source(environment);
}

void give_slots(Source& source, const HostsOptions& command, plan::EnvironmentView environment) {
    for (Host& host : source.hosts) {
        if (command.slots) {
            host.slots = *command.slots;
            if (host.slots_max.value_or(host.slots) < host.slots) host.slots_max.reset();
        } else if (command.slots_auto && !source.from_allocation && host.slots == 1 &&
                   transport::is_this_machine(host, transport::LookUp::own_names)) {
            const plan::MachineFacts here = plan::machine_facts(environment);
            host.slots = here.gpus_present > 0 ? here.gpus_present : here.cpus;
        }
    }
}

/// The list with everything but look-ups done.
Result<HostList> make_list(const HostsOptions& command, plan::EnvironmentView environment) {
    auto source = read_source(command, environment);
    if (!source) return std::unexpected(source.error());
    if (command.short_names) {
        auto shortened = shorten_names(source->hosts);
        if (!shortened) return shortened;
        source->hosts = std::move(*shortened);
    }
    give_slots(*source, command, environment);
    auto hosts = filter_hosts(source->hosts, command.include, command.exclude);
    if (hosts && command.sort) sort_naturally(*hosts);
    return hosts;
}

/// Looks the hosts up as asked; complains about all that fail.
/// \return how many have failed
std::size_t visit_all(HostSurvey& survey, HostList& hosts, const HostsOptions& command) {
    std::vector<std::pair<std::string, std::string>> failed;
    const std::vector<Result<std::string>> answers = survey.run();
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (!answers[i])
            failed.emplace_back(hosts[i].name, answers[i].error().message);
        else if (command.resolve)
            hosts[i].address = *answers[i] == hosts[i].name ? "" : *answers[i];
    }
    for (const auto& [names, why] : group_alike(failed))
        log::error("{}: {}", name_hosts(names), why);
    return failed.size();
}

/// Puts addresses where the format has only names.
Result<HostList> addresses_as_names(HostList hosts) {
    for (Host& host : hosts) {
        if (host.address.empty()) continue;  // the name is one already
        host.name = std::exchange(host.address, "");
    }
    const bool chosen =
        std::ranges::any_of(hosts, [](const Host& host) { return !host.slot_ids.empty(); });
    return chosen ? std::move(hosts) : merge_names(hosts, "--resolve");
}

int complain(const Error& error) {
    log::error("{}", error.message);
    return error.code == Errc::internal ? plan::kExitInternal : plan::kExitUsage;
}

int print(const HostsOptions& command, HostList hosts) {
    if (command.resolve && !holds_addresses(command.format)) {
        auto renamed = addresses_as_names(std::move(hosts));
        if (!renamed) return complain(renamed.error());
        hosts = std::move(*renamed);
    }
    const auto text = write_hosts(hosts, command.format);
    if (!text) return complain(text.error());
    const auto written = write_all(STDOUT_FILENO, *text);
    if (written) return 0;
    if (written.error().code == Errc::closed) return cli::kExitReaderGone;
    log::error("standard output: {}", written.error().message);
    return plan::kExitInternal;
}

}  // namespace

int run_hosts_command(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_hosts_command(words);
    if (const auto status = cli::settled(parsed, hosts_help)) return *status;
    const HostsOptions& command = parsed->own;
    auto hosts = make_list(command, environment);
    if (!hosts) return complain(hosts.error());
    if (!command.resolve && !command.check) return print(command, std::move(*hosts));
    SurveyOptions options;
    options.resolve = command.resolve;
    options.connect = command.check;
    options.ssh_port = command.ssh_port;
    options.connect_timeout = command.connect_timeout;
    HostSurvey survey(*hosts, options);
    const std::size_t failed = visit_all(survey, *hosts, command);
    if (failed > 0) log::error("{} of {} hosts cannot be reached", failed, hosts->size());
    ::_exit(failed > 0 ? plan::kExitUnreachable : print(command, std::move(*hosts)));
}

}  // namespace dtrun::commands
