#include "launcher/cli/reaching_rows.h"

#include "base/strings.h"
#include "launcher/cli/setters.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <iterator>

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;
using enum FlagScope;

Result<void> set_keep_warm(ParsedRun& parsed, string_view value) {
    return keep(parse_time_span(value, kTimeoutMax), parsed.options.warm.keep);
}

Result<void> set_no_warm(ParsedRun& parsed, string_view) {
    parsed.options.warm.off = true;
    return {};
}

Result<void> set_transport(ParsedRun& parsed, string_view value) {
    return keep(plan::find_transport(value, &plan::TransportRow::word), parsed.options.transport);
}

/// "one ssh each, one srun for all, or only this machine"
std::string ways_onto_hosts() {
    std::string ways;
    for (const plan::TransportRow& row : plan::kTransports) {
        if (row.help.empty()) continue;
        const bool is_last = &row == std::end(plan::kTransports) - 1;
        ways += fmt::format("{}{}", ways.empty() ? "" : is_last ? ", or " : ", ", row.help);
    }
    return ways;
}

Result<void> set_tree_login(ParsedRun& parsed, string_view value) {
    const auto choice =
        choose<plan::TreeLogin>(value, {{"auto", plan::TreeLogin::automatic},
                                        {"off", plan::TreeLogin::off},
                                        {"forward-agent", plan::TreeLogin::forward_agent}});
    return keep(choice, parsed.options.tree_login);
}

Result<void> set_ssh_command(ParsedRun& parsed, string_view value) {
    const auto words = shell_words(value);
    if (!words) return fail(Errc::invalid_input, "a quote in {} is never closed", value);
    if (words->empty()) return fail(Errc::invalid_input, "the command is blank");
    parsed.options.ssh_command = value;
    return {};
}

Result<void> add_interfaces(ParsedRun& parsed, string_view value) {
    std::vector<std::string>& names = parsed.options.network_interfaces;
    for (const string_view item : split(value, ',')) {
        const std::string name(trim(item));
        if (name.empty())
            return fail(Errc::invalid_input, "a name is missing in '{}'; write eth0,eth1", value);
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return {};
}

}  // namespace

Rows<ParsedRun> reaching_flags() {
    static const std::string transports =
        fmt::format("{}", fmt::join(plan::transport_words(&plan::TransportRow::word), "|"));
    static const std::string transport_help = fmt::format(
        "how to get onto the hosts: {} (default: srun for the hosts of a Slurm "
        "allocation, else ssh)",
        ways_onto_hosts());
    return {
        {{.names = "--transport",
          .metavar = transports,
          .group = reaching,
          .in = {frontends, bench, doctor},
          .help = transport_help},
         set_transport},
        {{.names = "--ssh-port -p",
          .metavar = "PORT",
          .group = reaching,
          .in = {torchrun, bench, doctor},
          .common = true,
          .argparse = "--ssh-port",
          .help = "ssh port, 1 to 65535 (default: ~/.ssh/config, else 22)"},
         set_number<&plan::Options::ssh_port, 1, kPortMax>},
        {{.names = "--ssh-identity-file -i",
          .metavar = "FILE",
          .group = reaching,
          .in = {torchrun, bench, doctor},
          .common = true,
          .argparse = "--ssh-identity-file",
          .help = "private key without a passphrase (default: those of ssh-agent, ~/.ssh/config "
                  "and ~/.ssh)"},
         set_text<&plan::Options::ssh_identity_file>},
        {{.names = "--ssh-command",
          .also = "-bootstrap-exec -launcher-exec",
          .metavar = "COMMAND",
          .group = reaching,
          .in = {frontends, bench, doctor},
          .help =
              "log in with this program, such as 'ssh -J gate' (default: dtrun's built-in ssh)"},
         set_ssh_command},
        {{.names = "--accept-new-host-keys",
          .group = reaching,
          .in = {frontends, bench, doctor},
          .common = true,
          .help = "trust hosts that are not in known_hosts yet, and add them; a changed or revoked "
                  "key is always refused (default: an error)"},
         set_true<&plan::Options::accept_new_host_keys>},
        {{.names = "--keep-warm",
          .metavar = "TIME",
          .group = reaching,
          .in = {frontends},
          .needs_agents = true,
          .help = "stay logged in for your later jobs until none has run for this long, such as "
                  "90, 10m or 2h; see `dtrun hold` (default: log out)"},
         set_keep_warm},
        {{.names = "--no-warm",
          .group = reaching,
          .in = {frontends},
          .needs_agents = true,
          .excludes = "--keep-warm",
          .help =
              "log in anew, even where `dtrun hold` or --keep-warm has a log-in (default: use it)"},
         set_no_warm},
        {{.names = "--network-interfaces --network-interface",
          .also = "-iface",
          .metavar = "NAMES",
          .group = reaching,
          .in = {frontends, bench, doctor},
          .adds_up = true,
          .argparse = "--network-interfaces --network-interface",
          .help =
              "use only these interfaces, such as eth0,eth1; also sets NCCL_SOCKET_IFNAME, "
              "GLOO_SOCKET_IFNAME and HOROVOD_GLOO_IFACE; repeatable (default: whichever works)"},
         add_interfaces},
        {{.names = "--connect-timeout",
          .metavar = "SECONDS",
          .group = reaching,
          .in = {join, frontends, bench, doctor},
          .help = "time for each host to be looked up, connected to and logged in to, and for its "
                  "agent to start; fractions allowed (default: 10)"},
         set_seconds<&plan::Options::connect_timeout, 1>},
        {{.names = "--wait-for-hosts",
          .metavar = "SECONDS",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "keep trying hosts that are not up yet, such as machines that are booting, for "
                  "this long after the start; not those that refuse your key (default: 0)"},
         set_seconds<&plan::Options::wait_for_hosts, 0>},
        {{.names = "--health-check",
          .metavar = "COMMAND",
          .group = reaching,
          .in = {join, frontends},
          .needs_agents = true,
          .help = "run COMMAND on each host first, for at most 60 s; only hosts where it exits 0 "
                  "take part (default: none)"},
         set_text<&plan::Options::health_check>},
        {{.names = "--encrypt",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "encrypt what dtrun sends between hosts, torch's store and dtrun's own "
                  "collectives included, but not what programs send by NCCL, Gloo, MPI or "
                  "themselves (default: authenticated, but in the clear)"},
         set_true<&plan::Options::encrypt>},
        {{.names = "--tree-threshold",
          .metavar = "HOSTS",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "with more hosts than this, some relay messages for others (default: 256)"},
         set_number<&plan::Options::tree_threshold, 2, kRanksMax>},
        {{.names = "--tree-login",
          .metavar = "auto|off|forward-agent",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "whether relaying hosts also log in to the hosts they relay for, by ssh, with "
                  "keys that lie there (auto) or those of your ssh-agent (forward-agent; root on "
                  "these hosts can use it until all hosts are there). It happens only while this "
                  "machine is busy with --fanout log-ins; what a relay cannot reach, this machine "
                  "logs in to (default: auto)"},
         set_tree_login},
        {{.names = "--fanout",
          .metavar = "HOSTS",
          .group = reaching,
          .in = {frontends, bench},
          .needs_agents = true,
          .help = "how many hosts to log in to at once from this machine (default: 128)"},
         set_number<&plan::Options::fanout, 1, 4'096>},
        {{.names = "--start-timeout",
          .metavar = "SECONDS",
          .group = reaching,
          .in = {join, frontends, bench},
          .needs_agents = true,
          .argparse = "--start-timeout",
          .help = "time until every rank runs (default: HOROVOD_START_TIMEOUT, else no limit but "
                  "--connect-timeout)"},
         set_seconds<&plan::Options::start_timeout, 1>},
    };
}

}  // namespace dtrun::cli
