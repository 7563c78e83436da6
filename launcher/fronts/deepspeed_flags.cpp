// The flags of `dtrun deepspeed`: those of DeepSpeed's runner, and those of `dtrun run` that do not
// clash.

#include "base/strings.h"
#include "launcher/cli/setters.h"
#include "launcher/fronts/fronts.h"

#include <algorithm>
#include <iterator>

namespace dtrun::fronts {
namespace {

using std::string_view;
using enum cli::FlagGroup;

constexpr string_view kNoCores =
    "dtrun does not bind ranks to processors; begin the program with numactl or taskset "
    "(--no_python)";
constexpr string_view kNotElastic =
    "a job that one dtrun launches has a fixed size; elastic jobs are those of dtrun serve, see "
    "dtrun join --help";

/// DeepSpeed's own default, -1, means: not given.
template <std::optional<int> DeepspeedWords::*Member, int Max>
Result<void> set_count(cli::Draft& draft, string_view value) {
    const auto number = cli::whole_number(value, -1, Max);
    if (!number) return std::unexpected(number.error());
    (draft.deepspeed.*Member).reset();
    if (*number > 0) draft.deepspeed.*Member = *number;
    return {};
}

Result<void> set_master_port(cli::Draft& draft, string_view value) {
    const auto number = cli::whole_number(value, 1, 65'535);
    if (!number) return std::unexpected(number.error());
    draft.deepspeed.master_port = *number;
    return {};
}

Result<void> set_node_rank(cli::Draft& draft, string_view value) {
    const auto number = cli::whole_number(value, -1, kHostsMax);
    if (!number) return std::unexpected(number.error());
    draft.deepspeed.node_rank = *number;
    return {};
}

Result<void> set_launcher(cli::Draft& draft, string_view value) {
    static constexpr string_view kKnown[] = {"pdsh",  "openmpi", "mvapich",
                                             "slurm", "mpich",   "impi"};
    std::string name(value);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (std::ranges::find(kKnown, name) == std::end(kKnown))
        return fail(Errc::invalid_input,
                    "'{}' is not one of pdsh, openmpi, mvapich, slurm, mpich and impi", value);
    draft.deepspeed.launcher = name;
    return {};
}

Result<void> set_log_level(cli::Draft& draft, string_view value) {
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
    draft.options.verbosity = found->second;
    return {};
}

cli::Flags host_flags() {
    return {
        {"-H --hostfile", "FILE", native,
         "hosts, as `worker-0 slots=4` in each line (default: /job/hostfile if it is there, else "
         "the batch system's hosts, else this machine)",
         cli::set_text<&plan::Options::hostfile>, ""},
        {"-i --include", "FILTER", native, "use only these hosts and slots: w0@w1:0,2",
         cli::set_text<&plan::Options::include>, ""},
        {"-e --exclude", "FILTER", native, "use all but these",
         cli::set_text<&plan::Options::exclude>, ""},
        {"--num_nodes", "N", native, "the first N hosts (default: all)",
         set_count<&DeepspeedWords::nodes, kHostsMax>, ""},
        {"--num_gpus --num_accelerators", "N", native,
         "slots 0 to N-1 of each host (default: its slots; this machine: its GPUs, else a rank for "
         "each NUMA node)",
         set_count<&DeepspeedWords::gpus, kSlotsMax>, ""},
        {"--master_addr", "HOST", native,
         "MASTER_ADDR, where rank 0 then serves torch's store (default: dtrun serves it)",
         cli::set_text<&DeepspeedWords::master_addr>, ""},
        {"--master_port", "PORT", native, "MASTER_PORT, likewise", set_master_port, ""},
        {"--ssh_port", "PORT", native, "port (default: ~/.ssh/config, else 22)", cli::set_ssh_port,
         ""},
    };
}

cli::Flags program_flags() {
    return {
        {"--module", "", native, "the script is a module, for python -m",
         cli::set_true<&DeepspeedWords::module>, ""},
        {"--no_python", "", native, "the script is a program: no python before it",
         cli::set_true<&DeepspeedWords::no_python>, ""},
        {"--no_local_rank", "", native,
         "do not give the script --local_rank=N as its first argument (default: it gets it)",
         cli::set_true<&DeepspeedWords::no_local_rank>, ""},
        {"--venv_script", "FILE", native, "source this file, in bash, before each rank",
         cli::set_text<&DeepspeedWords::venv_script>, ""},
        {"--enable_each_rank_log", "DIR", native,
         "what ranks print goes to DIR/TIME_rankN.log, and is not shown",
         cli::set_text<&DeepspeedWords::rank_logs>, ""},
        {"--save_pid", "", native, "keep dtrun's process id in /tmp/PID.deepspeed while it runs",
         cli::set_true<&DeepspeedWords::save_pid>, ""},
        {"--log_level", "LEVEL", native,
         "of dtrun's own messages: debug, info, warning, error or critical (default: warning)",
         set_log_level, ""},
        {"-q --quiet", "", native, "--log_level error",
         [](cli::Draft& draft, string_view) { return set_log_level(draft, "error"); }, ""},
        {"--launcher", "NAME", native, "accepted: dtrun starts the ranks itself", set_launcher, ""},
        {"--force_multi", "", native, "accepted: one remote host is reached as many are",
         cli::nothing, ""},
        {"--no_ssh_check", "", native, "accepted: there is no separate check", cli::nothing, ""},
        {"--node_rank", "N", native, "accepted if 0: dtrun is run once and starts every node",
         set_node_rank, ""},
    };
}

cli::Flags refused_flags() {
    return {
        {"--no_ssh", "", native, "", nullptr,
         "dtrun starts all nodes from one command; without ssh run dtrun serve on one machine and "
         "dtrun join on each"},
        {"--launcher_args", "ARGS", native, "", nullptr,
         "there is no launcher underneath that could take them"},
        {"--bind_cores_to_rank", "", native, "", nullptr, kNoCores},
        {"--bind_core_list", "LIST", native, "", nullptr, kNoCores},
        {"--autotuning", "MODE", native, "", nullptr,
         "the autotuner starts jobs of its own; run DeepSpeed's deepspeed for it"},
        {"--elastic_training", "", native, "", nullptr, kNotElastic},
        {"--min_elastic_nodes", "N", native, "", nullptr, kNotElastic},
        {"--max_elastic_nodes", "N", native, "", nullptr, kNotElastic},
    };
}

cli::Flags make_deepspeed_flags() {
    cli::Flags flags;
    for (auto part : {host_flags, program_flags, refused_flags})
        std::ranges::move(part(), std::back_inserter(flags));
    flags.push_back({"--hosts", "HOSTS", hosts, "hosts and slots: s1:4,s2:4",
                     cli::set_text<&plan::Options::hosts>, ""});
    flags.push_back({"--ssh-identity-file", "FILE", reaching,
                     "private key (default: ssh-agent, ~/.ssh/config, your usual keys)",
                     cli::set_text<&plan::Options::ssh_identity_file>, ""});
    cli::add_common(flags, {"--max-restarts"});
    return flags;
}

}  // namespace

const cli::Flags& deepspeed_flags() {
    static const cli::Flags flags = make_deepspeed_flags();
    return flags;
}

}  // namespace dtrun::fronts
