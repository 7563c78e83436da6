// The flags and the help of `dtrun hosts`.

#include "base/strings.h"
#include "launcher/cli/setters.h"

#include <algorithm>

namespace dtrun::cli {
namespace {

using std::string_view;
using enum FlagGroup;

constexpr string_view kHosts = R"(usage: dtrun hosts [options]

Prints a host list in the format that another program wants. The hosts come
from -H, --hostfile or --nodelist, else from standard input if names are piped
in, else from the batch system whose job this is: Slurm, Flux, PBS, LSF, SGE,
OAR or Cobalt. Repeated names add up to slots and keep the place of the first.

Examples:
  srun hostname -s | dtrun hosts --sort > hostfile
      `n1 slots=4` lines for deepspeed, horovodrun, mpirun or dtrun --hostfile
  dtrun hosts --format nodelist
      the hosts of this batch job, as n[01-16]
  dtrun hosts --nodelist n[01-16] --slots 8 --format yaml > hosts.yaml
      a host list of dtrun's own, written once
  dtrun hosts --hostfile hosts.yaml --check --format plain
      whether ssh answers on every host, and their names if so

Formats:
  deepspeed, horovod   n1 slots=4
  openmpi              n1 slots=4 max_slots=8; user@n1
  mpich                n1:4
  yaml, json           everything that is known of a host
  plain                n1, one in a line
  nodelist             n[1-4], as Slurm writes it
  ansible              an INI inventory, group [dtrun]
What a format cannot say (a user, a port, chosen slots) is an error.
)";

constexpr string_view kHostsExit = R"(
Exit code: 0; 200 wrong words or input; 201 hosts are unknown (--resolve) or do
not answer (--check): all of them are named, and nothing is printed.
)";

Result<void> set_format(Draft& draft, string_view value) {
    std::vector<std::string> names;
    for (const NamedHostFormat& known : host_formats()) {
        names.emplace_back(known.name);
        if (known.name != value) continue;
        draft.hosts.format = known.format;
        return {};
    }
    return fail(Errc::invalid_input, "'{}' is not one of {}", value, join_names(names, 16));
}

Result<void> set_slots(Draft& draft, string_view value) {
    draft.hosts.slots_auto = value == "auto";
    draft.hosts.slots.reset();
    if (draft.hosts.slots_auto) return {};
    const auto number = whole_number(value, 1, kSlotsMax);
    if (!number) return fail(number.error(), "neither auto nor a number");
    draft.hosts.slots = *number;
    return {};
}

Result<void> set_port(Draft& draft, string_view value) {
    const auto number = whole_number(value, 1, 65'535);
    if (!number) return std::unexpected(number.error());
    draft.hosts.ssh_port = *number;
    return {};
}

Result<void> set_timeout(Draft& draft, string_view value) {
    const auto time = parse_seconds(value, kTimeoutMin, kTimeoutMax);
    if (!time) return std::unexpected(time.error());
    draft.hosts.connect_timeout = *time;
    return {};
}

Flags source_flags() {
    return {
        {"-H --hosts", "HOSTS", hosts, "hosts and slots: s1:4,s2:4; also user@s1, n[01-16]:8",
         set_text<&HostsCommand::hosts>, ""},
        {"--hostfile -hostfile", "FILE", hosts,
         "a hostfile of any program, or YAML; - is standard input",
         set_text<&HostsCommand::hostfile>, ""},
        {"--nodelist", "LIST", hosts, "names in Slurm's notation: n[01-16,20],login1",
         set_text<&HostsCommand::nodelist>, ""},
    };
}

Flags print_flags() {
    return {
        {"--format -f", "FORMAT", output, "see above (default: deepspeed)", set_format, ""},
        {"--slots", "N|auto", output,
         "of every host; auto: this machine has one for each GPU, else CPU, where a list gives it "
         "just one (default: as the hosts' source has it)",
         set_slots, ""},
        {"--short", "", output, "cut names at the first dot (default: as they are)",
         set_true<&HostsCommand::short_names>, ""},
        {"--sort", "", output, "n2 before n10 (default: order of first mention)",
         set_true<&HostsCommand::sort>, ""},
        {"--include", "FILTER", output, "only these hosts and slots: s1@s2:0,2 (default: all)",
         set_text<&HostsCommand::include>, ""},
        {"--exclude", "FILTER", output, "all but these (default: none left out)",
         set_text<&HostsCommand::exclude>, ""},
    };
}

Flags reach_flags() {
    return {
        {"--resolve", "", reaching,
         "look names up: their numeric addresses in place of the names, beside them in yaml, json "
         "and ansible",
         set_true<&HostsCommand::resolve>, ""},
        {"--check", "", reaching, "connect to the ssh port of every host but this machine",
         set_true<&HostsCommand::check>, ""},
        {"--ssh-port -p", "PORT", reaching, "of hosts that name none (default: 22)", set_port, ""},
        {"--connect-timeout", "SECONDS", reaching,
         "for each host, with the look-up; fractions allowed (default: 10)", set_timeout, ""},
    };
}

Flags make_hosts_flags() {
    Flags flags;
    for (auto part : {source_flags, print_flags, reach_flags})
        std::ranges::move(part(), std::back_inserter(flags));
    const auto help = std::ranges::find_if(
        run_flags(), [](const Flag& flag) { return flag.names.starts_with("--help "); });
    flags.push_back(*help);
    return flags;
}

}  // namespace

const Flags& hosts_flags() {
    static const Flags flags = make_hosts_flags();
    return flags;
}

std::string hosts_help() {
    std::string help(kHosts);
    for (const auto& [group, title] :
         {std::pair<FlagGroup, string_view>{hosts, "Where hosts come from"},
          {output, "What is printed"},
          {reaching, "Looking them up"},
          {other, "About dtrun"}})
        help += fmt::format("\n{}:\n{}", title, flag_rows(hosts_flags(), group));
    return help + std::string(kHostsExit);
}

}  // namespace dtrun::cli
