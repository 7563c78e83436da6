#include "launcher/cli/foreign_rows.h"

#include "base/log.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/cli/binding_rows.h"
#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <utility>

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;

constexpr std::size_t kWordsColumn = 34;  // where explanations begin in `dtrun help words`

constexpr string_view kTorchrun = "or -H and -np: dtrun is run once, not on every node";
constexpr string_view kDeepspeed = "or -H and -np";
constexpr string_view kAccelerate =
    "a flag of accelerate; run dtrun once for all machines: write -H s1:4,s2:4 python3 train.py";
constexpr string_view kBatch = "for the batch system: give it to sbatch, salloc or qsub";
constexpr string_view kGpus =
    "devices are the batch system's to give; a rank finds its own by LOCAL_RANK, or as the only "
    "one that it sees with --contract devices";
constexpr string_view kFiles = "write --output-dir DIR: a file for each rank's stdout and stderr";
constexpr string_view kDaemons =
    "for daemons of mpirun, which dtrun does not need; leave it out, or use --mpi mpirun";
constexpr string_view kDebugger =
    "write --wrap [RANKS:]COMMAND, as in --wrap 0:'gdbserver :2345 {}'";
constexpr string_view kMemory =
    "memory is taken beside the processors of --bind-to; for more write --wrap 'numactl ...'";
constexpr string_view kPinning =
    "write --bind-to core, share, numa, socket or gpu, and --cpus-per-rank N";
constexpr string_view kManyPrograms =
    "write the programs one after the other: dtrun -np 2 ./a : -np 1 ./b";
constexpr string_view kNoCopies =
    "programs are not copied: put them where all hosts have them, by a shared directory or by "
    "rsync before";
constexpr string_view kSteps =
    "for srun's steps, of which dtrun starts one on all hosts; leave hosts out with --include or "
    "--exclude";
constexpr string_view kMcaFiles =
    "settings of Open MPI are variables here: -x OMPI_MCA_btl=tcp,self";

template <const plan::Tag* Form>
Result<void> set_tag(ParsedRun& parsed, string_view) {
    parsed.options.tag = *Form;
    return {};
}

Result<void> add_variable(ParsedRun& parsed, string_view name, string_view value) {
    if (const auto settable = plan::check_settable(name); !settable) return settable;
    if (!plan::is_variable_name(name))
        return fail(Errc::invalid_input, "'{}' is not a variable's name", name);
    parsed.options.export_vars.push_back(fmt::format("{}={}", name, value));
    return {};
}

/// "NAME VALUE", or NAME=VALUE behind a '='.
std::pair<string_view, string_view> name_and_value(string_view words) {
    const std::size_t end = words.find_first_of(" =");
    if (end == string_view::npos) return {words, {}};
    return {words.substr(0, end), words.substr(end + 1)};
}

Result<void> add_named(ParsedRun& parsed, string_view words) {
    const auto [name, value] = name_and_value(words);
    return add_variable(parsed, name, value);
}

Result<void> add_assignment(ParsedRun& parsed, string_view words) {
    const auto [name, value] = name_and_value(words);
    if (const auto settable = plan::check_settable(name); !settable) return settable;
    parsed.options.assignments.emplace_back(name, value);
    return {};
}

/// A setting of Open MPI: ranks read it from their environment, but daemons of mpirun are not there.
Result<void> add_mca(ParsedRun& parsed, string_view words) {
    constexpr string_view kOfDaemons[] = {"plm_",  "orte_", "prte_", "oob_",     "ras_",   "rmaps_",
                                          "odls_", "ess_",  "iof_",  "grpcomm_", "routed_"};
    const auto [name, value] = name_and_value(words);
    const bool oversubscribes = name == "rmaps_base_oversubscribe" && says_yes(value);
    if (oversubscribes) parsed.options.oversubscribe = true;
    const bool is_followed = keep_rsh_word(parsed.rsh, name, value) || oversubscribes;
    if (!is_followed &&
        std::ranges::any_of(kOfDaemons, [&](string_view of) { return name.starts_with(of); }))
        parsed.options.notes.push_back(
            fmt::format("--mca {}: is for daemons of mpirun, and has no effect", name));
    return add_variable(parsed, fmt::format("OMPI_MCA_{}", name), value);
}

/// "A,B": variables with their values here.
Result<void> add_list(ParsedRun& parsed, string_view names) {
    for (const string_view name : split(names, ',')) {
        const string_view trimmed = trim(name);
        if (const auto settable = plan::check_settable(trimmed); !settable) return settable;
        parsed.options.export_vars.emplace_back(trimmed);
    }
    return {};
}

/// srun's --export=ALL, NONE, NIL or a list of names, some with values; names without ALL are the
/// only ones.
Result<void> set_export(ParsedRun& parsed, string_view value) {
    bool all = false;
    for (const string_view item : split(value, ',')) {
        const string_view word = trim(item);
        if (word == "ALL") all = true;
        if (word == "ALL" || word == "NONE" || word == "NIL") continue;
        const auto [name, text] = name_and_value(word);
        if (const auto settable = plan::check_settable(name); !settable) return settable;
        parsed.options.export_vars.emplace_back(word);
    }
    parsed.options.no_env = !all;
    return {};
}

Result<void> set_launcher(ParsedRun& parsed, string_view value) {
    return keep(plan::find_transport(value, &plan::TransportRow::launcher),
                parsed.options.transport);
}

Result<void> set_distribution(ParsedRun& parsed, string_view value) {
    const string_view across = value.substr(0, value.find_first_of(":,"));
    const auto choice = choose<MapBy>(
        across, {{"block", MapBy::slot}, {"cyclic", MapBy::node}, {"*", MapBy::slot}});
    return keep(choice, parsed.options.map_by);
}

/// Minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].
std::optional<long long> slurm_seconds(string_view text) {
    const std::size_t dash = text.find('-');
    const auto days =
        dash == string_view::npos ? std::optional(0LL) : to_int(text.substr(0, dash), 0, 365);
    std::vector<long long> numbers;
    for (const string_view part :
         split(dash == string_view::npos ? text : text.substr(dash + 1), ':')) {
        const auto number = to_int(part, 0, 1'000'000);
        if (!number || numbers.size() == 3) return std::nullopt;
        numbers.push_back(*number);
    }
    if (!days) return std::nullopt;
    // Without days the first of one or two numbers are minutes, with days hours.
    if (dash == string_view::npos && numbers.size() < 3) numbers.insert(numbers.begin(), 0);
    numbers.resize(3);
    return ((*days * 24 + numbers[0]) * 60 + numbers[1]) * 60 + numbers[2];
}

Result<void> set_slurm_time(ParsedRun& parsed, string_view value) {
    const auto seconds = slurm_seconds(value);
    const auto limit = std::chrono::duration_cast<std::chrono::seconds>(kTimeoutMax).count();
    if (!seconds || *seconds < 1 || *seconds > limit)
        return fail(Errc::invalid_input,
                    "'{}' is not a time of at most {} hours such as 30 (minutes), 1:30:00 or 0-12; "
                    "--timeout takes seconds",
                    value, limit / 3600);
    parsed.options.time_limit = std::chrono::seconds(*seconds);
    return {};
}

Rows<ParsedRun> words_of_places() {
    return {
        {{.names = "--display-map -display-map --display-allocation -display-allocation "
                   "--display-devel-map -display-devel-map --display-devel-allocation "
                   "-display-devel-allocation --display-diffable-map -display-diffable-map "
                   "--display-topo -display-topo -print-rank-map",
          .group = foreign,
          .help = "prints the plan, then starts; --plan only prints it"},
         set_true<&plan::Options::show_plan>},
        {{.names = "--bynode -bynode -rr", .group = foreign, .help = "--map-by node"},
         set_to<&plan::Options::map_by, MapBy::node>},
        {{.names = "--byslot -byslot", .group = foreign, .help = "--map-by slot, the default"},
         set_to<&plan::Options::map_by, MapBy::slot>},
        {{.names = "--pernode -pernode", .group = foreign, .help = "-N 1"},
         [](ParsedRun& parsed, string_view) { return set_ranks_per_host(parsed, "1"); }},
        {{.names = "--distribution",
          .metavar = "block|cyclic",
          .group = foreign,
          .help = "--map-by slot or node; it does not say how ranks lie inside a host"},
         set_distribution},
        {{.names =
              "--nooversubscribe -nooversubscribe --use-hwthread-cpus --hetero-nodes --overlap "
              "--exact --preserve-env --quit-on-interrupt --disable-status",
          .group = foreign,
          .help = "accepted: that is so already"},
         nothing},
        {{.names = "--nodes",
          .group = foreign,
          .refused =
              "srun's number of hosts: hosts are those of -H or of the allocation; leave some "
              "out with --include or --exclude, and say with -N how many ranks each has"}},
        {{.names = "-w --nodelist --nodefile -F",
          .group = foreign,
          .refused =
              "write -H n[01-04]:8, --hostfile FILE, or in an allocation --include n01@n02"}},
        {{.names = "--nolocal -nolocal",
          .group = foreign,
          .refused =
              "this machine runs ranks only if it is one of the hosts; leave it out of -H, or "
              "--exclude it"}},
        {{.names = "--ntasks-per-socket --ntasks-per-core -npersocket --npersocket",
          .group = foreign,
          .refused = "write -N for the ranks of a host"}},
        {{.names = "--slot-list -binding", .group = foreign, .refused = kPinning}},
        {{.names = "--mem-bind -membind", .group = foreign, .refused = kMemory}},
        {{.names = "-c",
          .group = foreign,
          .refused =
              "mpirun's number of ranks, and srun's number of processors for each: write -np N "
              "or --cpus-per-rank N"}},
        {{.names = "--multi-prog --configfile -configfile --app -app",
          .group = foreign,
          .refused = kManyPrograms}},
    };
}

Rows<ParsedRun> words_of_variables() {
    return {
        {{.names = "--mca -mca --gmca -gmca --omca",
          .metavar = "NAME VALUE",
          .group = foreign,
          .adds_up = true,
          .sets_variable = true,
          .help = "a setting of Open MPI, set as -x OMPI_MCA_NAME=VALUE"},
         add_mca},
        {{.names = "-env",
          .metavar = "NAME VALUE",
          .group = foreign,
          .adds_up = true,
          .of_program = true,
          .sets_variable = true,
          .help = "NAME=VALUE before the program, for that program alone"},
         add_assignment},
        {{.names = "-genv",
          .metavar = "NAME VALUE",
          .group = foreign,
          .adds_up = true,
          .sets_variable = true,
          .help = "-x NAME=VALUE"},
         add_named},
        {{.names = "-genvlist -envlist",
          .metavar = "NAMES",
          .group = foreign,
          .adds_up = true,
          .of_program = true,
          .help = "-x for each of these, with their values here"},
         add_list},
        {{.names = "-genvall -envall",
          .group = foreign,
          .of_program = true,
          .help = "accepted: your environment is forwarded"},
         nothing},
        {{.names = "-genvnone -envnone", .group = foreign, .help = "--no-env"},
         set_true<&plan::Options::no_env>},
        {{.names = "--export",
          .metavar = "ALL|NONE|NAMES",
          .group = foreign,
          .adds_up = true,
          .sets_variable = true,
          .help = "srun's: ALL is the default, NONE means --no-env, NAME=VALUE means -x"},
         set_export},
        {{.names = "--tune -tune --am -am --prtemca --pmixmca",
          .group = foreign,
          .refused = kMcaFiles}},
        {{.names = "--path -path",
          .group = foreign,
          .refused = "write the program with its path, or -x PATH=DIR:..."}},
        {{.names = "--show-env --print-env",
          .group = foreign,
          .refused =
              "dtrun contracts lists what ranks get; --plan --verbose shows what you have set"}},
    };
}

Rows<ParsedRun> words_of_launching() {
    static const std::string launchers =
        fmt::format("{}", fmt::join(plan::transport_words(&plan::TransportRow::launcher), "|"));
    return {
        {{.names = "--allow-run-as-root -allow-run-as-root",
          .group = foreign,
          .help = "accepted: root may use dtrun"},
         nothing},
        {{.names = "-bootstrap -launcher",
          .metavar = launchers,
          .group = foreign,
          .help = "--transport, in the terms that MPI's launchers use"},
         set_launcher},
        {{.names = "--prefix -prefix",
          .group = foreign,
          .refused = "not needed: hosts need neither dtrun nor an MPI launcher; leave it out"}},
        {{.names = "--launch-agent --dvm --hnp --personality -rmk --ompi-server --server-wait-time "
                   "--report-uri -report-uri --report-events -report-events --fwd-mpirun-port "
                   "-localhost -nameserver -demux -usize -order-nodes -skip-launch-node "
                   "-disable-hostname-propagation -enable-x",
          .group = foreign,
          .refused = kDaemons}},
        {{.names = "--leave-session-attached -leave-session-attached --noprefix -noprefix --novm "
                   "-novm --do-not-resolve -do-not-resolve --use-regexp -use-regexp "
                   "--disable-recovery -disable-recovery --enable-instant-on-support "
                   "-enable-instant-on-support --show-progress -show-progress",
          .group = foreign,
          .help = "accepted: for daemons of mpirun, which dtrun does not need"},
         nothing},
        {{.names = "--debug-daemons -debug-daemons --debug-daemons-file -debug-daemons-file "
                   "--debug-devel -debug-devel",
          .group = foreign,
          .help = "--debug"},
         set_to<&plan::Options::verbosity, log::Level::debug>},
        {{.names = "--report-pid -report-pid",
          .group = foreign,
          .refused = "dtrun jobs has the process ids of jobs, and dtrun end ends one"}},
        {{.names = "-s",
          .group = foreign,
          .refused = "who reads standard input is said by --stdin; programs are not copied"}},
        {{.names = "--preload-binary -preload-binary --preload-files -preload-files --bcast "
                   "--send-libs",
          .group = foreign,
          .refused = kNoCopies}},
        {{.names = "--het-group --relative", .group = foreign, .refused = kSteps}},
        {{.names = "--prolog --epilog --task-prolog --task-epilog",
          .group = foreign,
          .refused = "write --wrap COMMAND, as in --wrap 'my-prolog {}'"}},
        {{.names = "--propagate",
          .group = foreign,
          .refused = "the soft limits of core files, locked memory and the stack go along in any "
                     "case; leave it out"}},
        {{.names =
              "-A --account -J --job-name --partition --qos -C --constraint --mem --reservation "
              "--jobid --exclusive --immediate --mem-per-cpu --mem-per-gpu --cpus-per-gpu "
              "--gres-flags --licenses --begin --deadline --dependency --mail-type --mail-user "
              "--clusters --cluster-constraint --comment --wckey --mcs-label --switches --tmp "
              "--mincpus --nice --priority --hold --contiguous --core-spec --thread-spec "
              "--threads-per-core --cores-per-socket --sockets-per-node --extra-node-info "
              "--time-min --use-min-nodes --spread-job --signal --reboot --power --delay-boot "
              "--acctg-freq --cpu-freq --gpu-freq --bb --bbf",
          .group = foreign,
          .refused = kBatch}},
        {{.names = "--gpus -g -G --gpus-per-node --gpus-per-task --gpus-per-host --gpus-per-socket "
                   "-gpus-per-proc --gres --tres-per-task",
          .group = foreign,
          .refused = kGpus}},
        {{.names = "--gpu-bind",
          .group = foreign,
          .refused = "write -x SLURM_GPU_BIND=none, or what else Slurm has for it; --bind-to gpu "
                     "puts a rank beside its GPU"}},
        {{.names =
              "--nnodes --nproc-per-node --standalone --node-rank --rdzv-backend --rdzv-endpoint "
              "--rdzv-id --rdzv-conf --master-addr --redirects --tee --module -m",
          .group = foreign,
          .refused = kTorchrun,
          .front = "torchrun"}},
        {{.names = "--num-gpus --num-nodes --launcher --master-port --deepspeed-config",
          .group = foreign,
          .refused = kDeepspeed,
          .front = "deepspeed"}},
        {{.names = "--num-processes --num-machines --machine-rank --main-process-ip "
                   "--main-process-port --multi-gpu",
          .group = foreign,
          .refused = kAccelerate}},
    };
}

/// What people write before they have read anything.
Rows<ParsedRun> words_of_guesses() {
    return {
        {{.names = "--user --username --login",
          .group = foreign,
          .refused = "write user@host:4 in -H or a hostfile, or User in ~/.ssh/config"}},
        {{.names = "--key --ssh-key --private-key --identity",
          .group = foreign,
          .refused = "write -i FILE"}},
        {{.names = "--port",
          .group = foreign,
          .refused = "ssh's port is -p N, torch's MASTER_PORT=N before the program"}},
        {{.names = "--password --ask-pass",
          .group = foreign,
          .refused = "log-ins are by keys: ssh-copy-id HOST once for each host, or ssh-agent"}},
        {{.names = "--image --container --docker --singularity --apptainer",
          .group = foreign,
          .refused = "write --wrap 'apptainer exec IMAGE', or 'docker run ... IMAGE'"}},
        {{.names = "--daemon",
          .group = foreign,
          .refused = "write -d to go on without the terminal; the daemon of a rendezvous is "
                     "dtrun serve"}},
        {{.names = "--copy --sync --rsync --upload", .group = foreign, .refused = kNoCopies}},
        {{.names = "--python",
          .group = foreign,
          .refused = "write python3, or the path of another one, before the script"}},
        {{.names = "-j --jobs --processes --procs --nproc --workers --num-workers",
          .group = foreign,
          .refused = "the number of ranks is -np N"}},
        {{.names = "--restart --restarts", .group = foreign, .refused = "write --max-restarts N"}},
        {{.names = "--gpu", .group = foreign, .refused = kGpus}},
        {{.names = "--silent", .group = foreign, .help = "--quiet"},
         set_to<&plan::Options::verbosity, log::Level::quiet>},
        {{.names = "-q",
          .group = foreign,
          .refused = "mpirun's --quiet, which is that here too; srun's --qos is for sbatch"}},
    };
}

Rows<ParsedRun> words_of_output() {
    return {
        {{.names = "--tag-output -tag-output", .group = foreign, .help = "--tag horovod"},
         set_tag<&plan::Tag::horovod>},
        {{.names = "-l --label -prepend-rank --label-io", .group = foreign, .help = "--tag rank"},
         set_tag<&plan::Tag::rank>},
        {{.names = "-u --unbuffered -print-all-exitcodes",
          .group = foreign,
          .help = "accepted: lines are shown as soon as they are complete"},
         nothing},
        {{.names = "--prepend-pattern -prepend-pattern",
          .group = foreign,
          .refused = "write --tag rank, host or rank-host, and --timestamps"}},
        {{.names = "-o -e --error --outfile-pattern -outfile-pattern --errfile-pattern "
                   "-errfile-pattern --log-file --log-dir",
          .group = foreign,
          .refused = kFiles}},
        {{.names = "--input",
          .group = foreign,
          .refused = "write < FILE, and --stdin none, all or RANK"}},
        {{.names = "--xml -xml --xml-file -xml-file",
          .group = foreign,
          .refused = "write --log FILE for what ranks print, and --report FILE for how they end"}},
        {{.names = "--merge-stderr-to-stdout -merge-stderr-to-stdout",
          .group = foreign,
          .refused = "write sh -c 'exec PROGRAM 2>&1'"}},
        {{.names = "--xterm -xterm --debugger --tv -tv --gdb -gdb --stop-on-exec -stop-on-exec",
          .group = foreign,
          .refused = kDebugger}},
        {{.names = "--get-stack-traces --report-state-on-timeout",
          .group = foreign,
          .refused = "Ctrl-\\ (SIGQUIT) and --init-timeout tell who waits for whom"}},
    };
}

Rows<ParsedRun> words_of_ending() {
    return {
        {{.names = "--time -t",
          .metavar = "TIME",
          .group = foreign,
          .help = "srun's form of --timeout: minutes, H:M:S or D-H"},
         set_slurm_time},
        {{.names = "--kill-on-bad-exit -K",
          .metavar = "[=0|1]",
          .group = foreign,
          .help = "0 means --keep-going; else accepted: that is so already"},
         [](ParsedRun& parsed, string_view value) -> Result<void> {
             parsed.options.keep_going = value == "0";
             return {};
         }},
        {{.names = "--no-kill -k",
          .group = foreign,
          .refused = "write --min-np N (the job goes on without the host), or --keep-going"}},
        {{.names = "--retries", .group = foreign, .refused = "write --max-restarts N"}},
        {{.names = "--wait -W",
          .group = foreign,
          .refused = "a rank that ends well does not end the others; --grace is the time between "
                     "SIGTERM and SIGKILL"}},
    };
}

}  // namespace

Rows<ParsedRun> foreign_flags() {
    Rows<ParsedRun> flags;
    for (const auto part : {words_of_places, foreign_binding_flags, words_of_variables,
                            words_of_launching, words_of_guesses, words_of_output, words_of_ending})
        std::ranges::move(part(), std::back_inserter(flags));
    return flags;
}

std::string words_help() {
    std::string text =
        "Flags of other launchers that dtrun understands, and what they mean here.\n";
    text += "\nOther names of dtrun's own flags:\n";
    const std::span<const Flag> flags = run_flags().flags();
    for (const Flag& flag : flags)
        if (!flag.also.empty())
            text += two_columns(comma_separated(flag.also), flag.first_name(), kWordsColumn);
    text += "\nFlags that have an equivalent:\n";
    for (const Flag& flag : flags)
        if (flag.group == foreign && !flag.help.empty())
            text += two_columns(comma_separated(flag.names), flag.help, kWordsColumn);
    text += "\nFlags that dtrun refuses, and what to write instead:\n";
    for (const Flag& flag : flags)
        if (flag.group == foreign && !flag.refused.empty())
            text += two_columns(comma_separated(flag.names), refusal_of(flag), kWordsColumn);
    return text;
}

}  // namespace dtrun::cli
