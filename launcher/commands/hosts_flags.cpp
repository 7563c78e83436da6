// The flags and the help of `dtrun hosts`.

#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/allocation.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/hosts_command.h"

namespace dtrun::commands {
namespace {

using std::string_view;
using enum cli::FlagGroup;

constexpr string_view kHosts = R"(
Examples:
  srun hostname -s | dtrun hosts --sort > hostfile
      `n1 slots=4` lines for deepspeed, horovodrun, mpirun or dtrun --hostfile
  dtrun hosts --format nodelist
      the hosts of this batch job, as n[01-16]
  dtrun hosts --nodelist n[01-16] --slots 8 --format yaml > hosts.yaml
      a host list in dtrun's own format
  dtrun hosts --hostfile hosts.yaml --check --format plain
      checks that ssh answers on every host, then prints their names

Formats:
  deepspeed, horovod   n1 slots=4
  openmpi              n1 slots=4 max_slots=8; user@n1
  mpich                n1:4
  yaml, json           everything that is known about a host
  plain                n1, one per line
  nodelist             n[1-4], as Slurm writes it
  ansible              an INI inventory, group [dtrun]
What a format cannot say (a user, a port, chosen slots) is an error.
)";

constexpr string_view kHostsExit = R"(
Exit code: 0; 200 wrong arguments or input; 201 hosts are unknown (--resolve) or
do not answer (--check): all of these are named, and no list is printed.
)";

Result<void> set_format(ParsedHosts& parsed, string_view value) {
    std::vector<std::string> names;
    for (const NamedHostFormat& known : host_formats()) {
        names.emplace_back(known.name);
        if (known.name != value) continue;
        parsed.own.format = known.format;
        return {};
    }
    return fail(Errc::invalid_input, "'{}' is not one of {}", value, join_names(names, 16));
}

Result<void> set_slots(ParsedHosts& parsed, string_view value) {
    parsed.own.slots_auto = value == "auto";
    parsed.own.slots.reset();
    if (parsed.own.slots_auto) return {};
    const auto number = cli::whole_number(value, 1, kSlotsMax);
    if (!number) return fail(number.error(), "neither auto nor a number");
    parsed.own.slots = *number;
    return {};
}

cli::Rows<ParsedHosts> source_flags() {
    return {
        {{.names = "-H --hosts",
          .metavar = "HOSTS",
          .group = hosts,
          .help = "hosts and slots: s1:4,s2:4; also user@s1, n[01-16]:8"},
         cli::set_text<&HostsOptions::hosts>},
        {{.names = "--hostfile -hostfile",
          .metavar = "FILE",
          .group = hosts,
          .excludes = "-H",
          .help = "a hostfile of any launcher, or YAML; - is standard input"},
         cli::set_text<&HostsOptions::hostfile>},
        {{.names = "--nodelist",
          .metavar = "LIST",
          .group = hosts,
          .excludes = "-H --hostfile",
          .help = "names in Slurm's notation: n[01-16,20],login1"},
         cli::set_text<&HostsOptions::nodelist>},
    };
}

/// "deepspeed|horovod|...".
std::string format_names() {
    std::string names;
    for (const NamedHostFormat& known : host_formats())
        names += fmt::format("{}{}", names.empty() ? "" : "|", known.name);
    return names;
}

cli::Rows<ParsedHosts> print_flags() {
    static const std::string formats = format_names();
    return {
        {{.names = "--format -f",
          .metavar = "FORMAT",
          .words = formats,
          .group = output,
          .help = "see above (default: deepspeed)"},
         set_format},
        {{.names = "--slots",
          .metavar = "N|auto",
          .group = output,
          .help = "slots of every host; auto: where a list gives this machine just one, one for "
                  "each of its GPUs, else CPUs (default: as the source of the hosts says)"},
         set_slots},
        {{.names = "--short",
          .group = output,
          .help = "cut names at the first dot (default: as they are)"},
         cli::set_true<&HostsOptions::short_names>},
        {{.names = "--sort",
          .group = output,
          .help = "sort, with n2 before n10 (default: order of first mention)"},
         cli::set_true<&HostsOptions::sort>},
        {{.names = "--include",
          .metavar = "FILTER",
          .group = output,
          .help = "only these hosts and slots: s1@s2:0,2 (default: all)"},
         cli::set_text<&HostsOptions::include>},
        {{.names = "--exclude",
          .metavar = "FILTER",
          .group = output,
          .excludes = "--include",
          .help = "all but these (default: none left out)"},
         cli::set_text<&HostsOptions::exclude>},
    };
}

cli::Rows<ParsedHosts> reach_flags() {
    return {
        {{.names = "--resolve",
          .group = reaching,
          .help = "look names up: print numeric addresses in place of names, in yaml, json and "
                  "ansible beside them"},
         cli::set_true<&HostsOptions::resolve>},
        {{.names = "--check",
          .group = reaching,
          .help = "check that every host but this machine answers at its ssh port"},
         cli::set_true<&HostsOptions::check>},
        {{.names = "--ssh-port -p",
          .metavar = "PORT",
          .group = reaching,
          .help = "ssh port of hosts that name none (default: 22)"},
         cli::set_number<&HostsOptions::ssh_port, 1, cli::kPortMax>},
        {{.names = "--connect-timeout",
          .metavar = "SECONDS",
          .group = reaching,
          .help = "time for each host, look-up included; fractions allowed (default: 10)"},
         cli::set_seconds<&HostsOptions::connect_timeout>},
    };
}

}  // namespace

const cli::FlagTable<ParsedHosts>& hosts_flags() {
    static const cli::FlagTable<ParsedHosts> table(
        "dtrun hosts",
        {source_flags(), print_flags(), reach_flags(), cli::about_rows<ParsedHosts>()});
    return table;
}

Result<ParsedHosts> parse_hosts_command(cli::Words words) {
    ParsedHosts parsed;
    const auto rest = cli::read_options(hosts_flags(), words, parsed);
    if (!rest) return std::unexpected(rest.error());
    if (parsed.asked == cli::Ask::nothing && !rest->words.empty())
        return fail(Errc::invalid_input, "'{}' is no option; usage: dtrun hosts [options]",
                    rest->words.front());
    return parsed;
}

std::string hosts_help() {
    static constexpr cli::HelpSection kSections[] = {{hosts, "Where hosts come from"},
                                                     {output, "What is printed"},
                                                     {reaching, "Looking them up"},
                                                     {other, "About dtrun"}};
    const std::string what = fmt::format(
        "Prints a host list in the format that another program wants. The hosts come from -H, "
        "--hostfile or --nodelist, else from standard input if names are piped in, else from the "
        "batch system whose job this is: {}. Repeated names add up to slots and keep the place of "
        "the first.",
        scheduler_names());
    return "usage: dtrun hosts [options]\n\n" + wrap(what, 0) + std::string(kHosts) +
           cli::sections(hosts_flags().flags(), kSections) + std::string(kHostsExit);
}

}  // namespace dtrun::commands
