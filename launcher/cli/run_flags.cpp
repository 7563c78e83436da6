// The flags of `dtrun run`. Other commands take some of them: see Flag::in.

#include "launcher/cli/binding_rows.h"
#include "launcher/cli/elastic_rows.h"
#include "launcher/cli/environment_rows.h"
#include "launcher/cli/foreign_rows.h"
#include "launcher/cli/history_rows.h"
#include "launcher/cli/horovod_rows.h"
#include "launcher/cli/look_rows.h"
#include "launcher/cli/output_rows.h"
#include "launcher/cli/reaching_rows.h"
#include "launcher/cli/run.h"
#include "launcher/cli/setters.h"
#include "launcher/cli/show_rows.h"

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;
using enum FlagScope;

Result<void> set_plan(ParsedRun& parsed, string_view value) {
    const auto choice = choose<plan::PlanFormat>(value, {{"", plan::PlanFormat::text},
                                                         {"text", plan::PlanFormat::text},
                                                         {"json", plan::PlanFormat::json}});
    if (!choice) return fail(Errc::invalid_input, "'{}' is neither text nor json", value);
    parsed.options.plan = *choice;
    return {};
}

Rows<ParsedRun> host_flags() {
    return {
        {{.names = "-np -n --np --num-proc",
          .also = "--ntasks",
          .metavar = "N",
          .group = hosts,
          .in = {join},
          .of_program = true,
          .common = true,
          .argparse = "--num-proc",
          .help = "number of ranks (default: what the batch system says, else every slot; 1 "
                  "without hosts)"},
         set_number<&plan::Options::world_size, 1, kRanksMax>},
        {{.names = "-H --hosts",
          .also = "--host -host",
          .metavar = "HOSTS",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .of_program = true,
          .common = true,
          .argparse = "--hosts",
          .help = "hosts and slots: s1:4,s2:4; also s1 (1 slot), user@s1:4, [::1]:4, n[01-16]:8 "
                  "(default: the batch system's, else this machine)"},
         set_text<&plan::Options::hosts>},
        {{.names = "--hostfile -hostfile",
          .also = "--machinefile -machinefile -machine-file -machine -f --default-hostfile",
          .metavar = "FILE",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .common = true,
          .argparse = "--hostfile -hostfile",
          .excludes = "-H",
          .help = "a file with one host per line, as `s1 slots=4`, `s1:4` or `s1`, or in YAML; - "
                  "is standard input"},
         set_text<&plan::Options::hostfile>},
        {{.names = "--include",
          .metavar = "FILTER",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .help =
              "use only these hosts and slots, with '@' between hosts: s1@s2:0,2 (default: all)"},
         set_text<&plan::Options::include>},
        {{.names = "--exclude",
          .metavar = "FILTER",
          .group = hosts,
          .in = {torchrun, bench, doctor},
          .excludes = "--include",
          .help = "use all but these (default: leave out none)"},
         set_text<&plan::Options::exclude>},
        {{.names = "-N --ranks-per-host",
          .also =
              "-ppn --ppn -perhost -npernode --npernode --ntasks-per-node --tasks-per-node -grr",
          .metavar = "N",
          .group = hosts,
          .common = true,
          .twice = "srun's -N, a number of nodes, is what -H, --hostfile or the allocation say",
          .help = "run N ranks on each host (default: one per slot)"},
         set_ranks_per_host},
        {{.names = "--rankfile",
          .also = "-rankfile -rf",
          .metavar = "FILE",
          .group = hosts,
          .excludes = "-N --map-by --include --exclude",
          .help = "a file that says where each rank runs, with lines such as `rank 0=s1` (default: "
                  "by slots)"},
         set_text<&plan::Options::rankfile>},
        {{.names = "--oversubscribe",
          .also = "-oversubscribe --overcommit -O",
          .group = hosts,
          .in = {frontends, bench},
          .help = "allow more ranks than slots (default: an error)"},
         set_true<&plan::Options::oversubscribe>},
        {{.names = "--plan",
          .also = "--do-not-launch --test-only --dry-run",
          .metavar = "[=text|json]",
          .group = hosts,
          .in = {frontends},
          .common = true,
          .help = "print which rank would run where, and start nothing; values of variables are "
                  "shown only with --verbose (default: start; --plan alone: text)"},
         set_plan},
    };
}

Result<void> set_on_failure(ParsedRun& parsed, string_view value) {
    const auto choice =
        choose<string_view>(value, {{"end", value}, {"elastic", value}, {"continue", value}});
    return keep(choice, parsed.on_rank_failure);
}

Result<void> set_on_hang(ParsedRun& parsed, string_view value) {
    return keep(choose<bool>(value, {{"report", false}, {"kill", true}}), parsed.options.kill_hung);
}

Rows<ParsedRun> ending_flags() {
    return {
        {{.names = "--timeout",
          .also = "-timeout",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .common = true,
          .help = "end the job after so many seconds (default: none)"},
         set_seconds<&plan::Options::time_limit, 1>},
        {{.names = "--grace",
          .metavar = "SECONDS",
          .group = ending,
          .in = {join, frontends, bench},
          .needs_agents = true,
          .help =
              "time between SIGTERM and SIGKILL when the job ends; fractions allowed (default: 5)"},
         set_seconds<&plan::Options::grace, 0>},
        {{.names = "--heartbeat-timeout",
          .metavar = "SECONDS",
          .group = ending,
          .in = {join, frontends, bench},
          .needs_agents = true,
          .help = "a host that is silent for this long is lost; at least 1, fractions allowed "
                  "(default: 3)"},
         set_seconds<&plan::Options::heartbeat_timeout, 1'000>},
        {{.names = "--max-restarts",
          .metavar = "N",
          .group = ending,
          .in = {join, deepspeed},
          .needs_agents = true,
          .common = true,
          .help =
              "when a rank fails, end all ranks and start them again, up to N times (default: 0)"},
         set_number<&plan::Options::max_restarts, 0, kRestartsMax>},
        {{.names = "--restart-delay",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "wait this long before ranks start again (default: 0; up to 5 if they keep "
                  "failing at once)"},
         set_seconds<&plan::Options::restart_delay, 0>},
        {{.names = "--min-uptime",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "a rank that fails sooner than this after its start ends the job, whatever "
                  "--max-restarts says (default: 0)"},
         set_seconds<&plan::Options::min_uptime, 0>},
        {{.names = "--init-timeout",
          .metavar = "SECONDS",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "how long ranks may wait for each other in the stores of their frameworks "
                  "(default: as long as the framework does)"},
         set_seconds<&plan::Options::init_timeout, 1>},
        {{.names = "--on-hang",
          .metavar = "report|kill",
          .group = ending,
          .in = {join, frontends},
          .needs_agents = true,
          .help = "what to do with a rank that spends longer in a section of its program "
                  "(dtrun_section()) than that section allows: name it, or kill it so that it "
                  "counts as failed (default: report)"},
         set_on_hang},
        {{.names = "--keep-going",
          .also = "--enable-recovery -enable-recovery -disable-auto-cleanup --continuous",
          .group = ending,
          .in = {frontends},
          .needs_agents = true,
          .help = "let the other ranks go on when one fails (default: end them)"},
         set_true<&plan::Options::keep_going>},
        {{.names = "--on-rank-failure",
          .metavar = "end|elastic|continue",
          .group = ending,
          .in = {torchrun},
          .needs_agents = true,
          .help =
              "what a failed rank or a lost host means for the other ranks: end them; go on as "
              "--min-np says; or leave them alone, since the program recovers by itself, and call "
              "the job a success if --min-np ranks succeed (default: end, with --min-np elastic)"},
         set_on_failure},
    };
}

Rows<ParsedRun> other_flags() {
    return {
        {{.names = "--help -h",
          .group = other,
          .in = {join, frontends, bench, doctor},
          .common = true,
          .argparse = "--help",
          .help = "this text"},
         ask<Ask::help>},
        {{.names = "--version -v",
          .also = "-V",
          .group = other,
          .in = {join, frontends, bench, doctor},
          .common = true,
          .argparse = "--version",
          .help = "the version"},
         ask<Ask::version>},
        {{.names = "--profile",
          .metavar = "NAME",
          .group = other,
          .in = {join, frontends},
          .help = "use this profile of ~/.config/dtrun/config.yaml; `dtrun config` shows what is "
                  "set where (default: DTRUN_PROFILE, else none)"},
         nothing},
        {{.names = "--check-build -cb",
          .group = other,
          .argparse = "--check-build",
          .help =
              "show which frameworks, controllers and operations there are, as horovodrun does"},
         ask<Ask::check_build>},
    };
}

}  // namespace

const FlagTable<ParsedRun>& run_flags() {
    static const FlagTable<ParsedRun> table(
        "dtrun",
        {host_flags(), binding_flags(), environment_flags(), reaching_flags(), output_flags(),
         ending_flags(), elastic_flags(), look_flags(), show_flags(), history_flags(),
         other_flags(), horovod_flags(), other_horovod_flags(), foreign_flags()});
    return table;
}

}  // namespace dtrun::cli
