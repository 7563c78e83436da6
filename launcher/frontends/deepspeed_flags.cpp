// The flags of `dtrun deepspeed`: those of DeepSpeed's runner, and those of `dtrun run` that do not
// clash.

#include "base/strings.h"
#include "launcher/cli/binding_rows.h"
#include "launcher/cli/setters.h"
#include "launcher/frontends/deepspeed.h"

#include <algorithm>
#include <iterator>

namespace dtrun::frontends {
namespace {

using std::string_view;
using enum cli::FlagGroup;

/// DeepSpeed's own default, -1, means: not given.
template <std::optional<int> DeepspeedWords::*Member, int Max>
Result<void> set_count(ParsedDeepspeed& parsed, string_view value) {
    const auto number = cli::whole_number(value, -1, Max);
    if (!number) return std::unexpected(number.error());
    (parsed.own.*Member).reset();
    if (*number > 0) parsed.own.*Member = *number;
    return {};
}

Result<void> set_node_range(ParsedDeepspeed& parsed, string_view value) {
    const std::size_t colon = value.find(':');
    if (colon == string_view::npos)
        return set_count<&DeepspeedWords::nodes, kHostsMax>(parsed, value);
    const auto min = to_int(value.substr(0, colon), 1, kHostsMax);
    const auto max = to_int(value.substr(colon + 1), 1, kHostsMax);
    if (!min || !max || *min > *max)
        return fail(Errc::invalid_input, "'{}' is neither N nor MIN:MAX, of at least 1", value);
    parsed.own.elastic = true;
    parsed.own.nodes_min = static_cast<int>(*min);
    parsed.own.nodes_max = parsed.own.nodes = static_cast<int>(*max);
    return {};
}

Result<void> set_launcher(ParsedDeepspeed& parsed, string_view value) {
    static constexpr string_view kKnown[] = {"pdsh",  "openmpi", "mvapich",
                                             "slurm", "mpich",   "impi"};
    std::string name(value);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (std::ranges::find(kKnown, name) == std::end(kKnown))
        return fail(Errc::invalid_input,
                    "'{}' is not one of pdsh, openmpi, mvapich, slurm, mpich and impi", value);
    parsed.own.launcher = name;
    return {};
}

Result<void> set_log_level(ParsedDeepspeed& parsed, string_view value) {
    using enum log::Level;
    const std::pair<string_view, log::Level> levels[] = {{"debug", debug},
                                                         {"info", verbose},
                                                         {"warning", normal},
                                                         {"error", quiet},
                                                         {"critical", quiet}};
    const auto* const found =
        std::ranges::find(levels, value, &std::pair<string_view, log::Level>::first);
    if (found == std::end(levels))
        return fail(Errc::invalid_input,
                    "'{}' is not one of debug, info, warning, error and critical", value);
    parsed.options.verbosity = found->second;
    return {};
}

cli::Rows<ParsedDeepspeed> host_flags() {
    return {
        {{.names = "-H --hostfile",
          .metavar = "FILE",
          .group = native,
          .help = "a file with one host per line, as `worker-0 slots=4` (default: /job/hostfile if "
                  "it exists, else the batch system's hosts, else this machine)"},
         cli::set_text<&plan::Options::hostfile>},
        {{.names = "-i --include",
          .metavar = "FILTER",
          .group = native,
          .help = "use only these hosts and slots: w0@w1:0,2"},
         cli::set_text<&plan::Options::include>},
        {{.names = "-e --exclude",
          .metavar = "FILTER",
          .group = native,
          .excludes = "-i",
          .help = "use all but these"},
         cli::set_text<&plan::Options::exclude>},
        {{.names = "--num_nodes",
          .metavar = "N|MIN:MAX",
          .group = native,
          .help = "use the first N hosts; MIN:MAX: as --elastic_training with those numbers "
                  "(default: all)"},
         set_node_range},
        {{.names = "--num_gpus --num_accelerators",
          .metavar = "N",
          .group = native,
          .help = "use slots 0 to N-1 of each host (default: all its slots; on this machine its "
                  "GPUs, else a rank for each NUMA node)"},
         set_count<&DeepspeedWords::gpus, kSlotsMax>},
        {{.names = "--elastic_training",
          .group = native,
          .help = "the job goes on when hosts are lost, join or leave, with numbers of ranks that "
                  "the elasticity section of --deepspeed_config allows"},
         cli::set_true<&DeepspeedWords::elastic>},
        {{.names = "--min_elastic_nodes",
          .metavar = "N",
          .group = native,
          .help = "with at least this many hosts (default: 1)"},
         set_count<&DeepspeedWords::nodes_min, kHostsMax>},
        {{.names = "--max_elastic_nodes",
          .metavar = "N",
          .group = native,
          .help = "with at most this many hosts (default: all)"},
         set_count<&DeepspeedWords::nodes_max, kHostsMax>},
        {{.names = "--master_addr",
          .metavar = "HOST",
          .group = native,
          .help = "MASTER_ADDR, where rank 0 then serves torch's store (default: dtrun serves it)"},
         cli::set_text<&DeepspeedWords::master_addr>},
        {{.names = "--master_port",
          .metavar = "PORT",
          .group = native,
          .help = "MASTER_PORT, likewise"},
         cli::set_number<&DeepspeedWords::master_port, 1, cli::kPortMax>},
        {{.names = "--ssh_port",
          .metavar = "PORT",
          .group = native,
          .help = "port (default: ~/.ssh/config, else 22)"},
         cli::set_number<&plan::Options::ssh_port, 1, cli::kPortMax>},
    };
}

cli::Rows<ParsedDeepspeed> deepspeed_program_flags() {
    return {
        {{.names = "--module", .group = native, .help = "the script is a module, for python -m"},
         cli::set_true<&DeepspeedWords::module>},
        {{.names = "--no_python",
          .group = native,
          .help = "the script is a program: no python before it"},
         cli::set_true<&DeepspeedWords::no_python>},
        {{.names = "--no_local_rank",
          .group = native,
          .help =
              "do not give the script --local_rank=N as its first argument (default: it gets it)"},
         cli::set_true<&DeepspeedWords::no_local_rank>},
        {{.names = "--venv_script",
          .metavar = "FILE",
          .group = native,
          .help = "source this file, in bash, before each rank"},
         cli::set_text<&DeepspeedWords::venv_script>},
        {{.names = "--bind_cores_to_rank",
          .group = native,
          .excludes = "--bind-to --map-by",
          .help = "bind each rank to an equal part of its host's cores"},
         [](ParsedDeepspeed& parsed, string_view) -> Result<void> {
             parsed.options.binding.to = BindTo::share;
             return {};
         }},
        {{.names = "--bind_core_list",
          .metavar = "LIST",
          .group = native,
          .help = "with --bind_cores_to_rank: use only these processors, such as 0,2-4"},
         cli::set_cpus},
        {{.names = "--enable_each_rank_log",
          .metavar = "DIR",
          .group = native,
          .help = "write what ranks print to DIR/TIME_rankN.log instead of showing it"},
         cli::set_text<&DeepspeedWords::rank_logs>},
        {{.names = "--save_pid",
          .group = native,
          .help = "keep dtrun's process id in /tmp/PID.deepspeed while it runs"},
         cli::set_true<&DeepspeedWords::save_pid>},
        {{.names = "--log_level",
          .metavar = "LEVEL",
          .group = native,
          .help = "how much dtrun itself says: debug, info, warning, error or critical (default: "
                  "warning)"},
         set_log_level},
        {{.names = "-q --quiet", .group = native, .help = "--log_level error"},
         [](ParsedDeepspeed& parsed, string_view) { return set_log_level(parsed, "error"); }},
        {{.names = "--launcher",
          .metavar = "NAME",
          .group = native,
          .help = "accepted: dtrun starts the ranks itself"},
         set_launcher},
        {{.names = "--force_multi",
          .group = native,
          .help = "accepted: one remote host is reached in the same way as many"},
         cli::nothing},
        {{.names = "--no_ssh_check",
          .group = native,
          .help = "accepted: there is no separate check"},
         cli::nothing},
        {{.names = "--node_rank",
          .metavar = "N",
          .group = native,
          .help = "accepted if 0: dtrun is run once and starts every node"},
         cli::set_number<&DeepspeedWords::node_rank, -1, kHostsMax>},
    };
}

cli::Rows<ParsedDeepspeed> deepspeed_refused_flags() {
    return {
        {{.names = "--no_ssh",
          .group = native,
          .refused = "dtrun starts all nodes from one command; without ssh run dtrun serve on one "
                     "machine and dtrun join on each"}},
        {{.names = "--launcher_args",
          .metavar = "ARGS",
          .group = native,
          .refused = "there is no launcher underneath that could take them"}},
        {{.names = "--comment --account",
          .metavar = "TEXT",
          .group = native,
          .refused =
              "for Slurm's job: give it to sbatch or salloc, in whose job dtrun then starts"}},
        {{.names = "--autotuning",
          .metavar = "MODE",
          .group = native,
          .refused = "the autotuner starts jobs of its own; run DeepSpeed's deepspeed for it"}},
    };
}

/// Flags of `dtrun run` whose short names DeepSpeed uses otherwise.
cli::Rows<ParsedDeepspeed> renamed_flags() {
    return {
        {{.names = "--hosts",
          .metavar = "HOSTS",
          .group = hosts,
          .excludes = "-H",
          .help = "hosts and slots: s1:4,s2:4"},
         cli::set_text<&plan::Options::hosts>},
        {{.names = "--ssh-identity-file",
          .metavar = "FILE",
          .group = reaching,
          .help = "private key (default: ssh-agent, ~/.ssh/config, your usual keys)"},
         cli::set_text<&plan::Options::ssh_identity_file>},
    };
}

}  // namespace

const cli::FlagTable<ParsedDeepspeed>& deepspeed_flags() {
    static const cli::FlagTable<ParsedDeepspeed> table(
        "dtrun deepspeed",
        {host_flags(), deepspeed_program_flags(), deepspeed_refused_flags(), renamed_flags(),
         cli::rows_for<ParsedDeepspeed>(cli::run_flags().in_scope(cli::FlagScope::deepspeed))});
    return table;
}

}  // namespace dtrun::frontends
