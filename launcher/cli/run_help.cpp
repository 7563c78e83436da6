// The text of `dtrun --help`.

#include "base/text_layout.h"
#include "launcher/cli/run.h"
#include "launcher/plan/exit_code.h"

#include <fmt/format.h>

namespace dtrun::cli {

namespace {

constexpr std::string_view kIntroduction = R"(
Starts copies of a program, called ranks, on this machine or on many, tells each
its number, shows what they print, and leaves nothing behind. Programs for
Horovod, torch, DeepSpeed or MPI run unmodified; horovodrun's flags work too.

Examples:
  dtrun demo
      a first job with a built-in program; also with -H s1:2,s2:2
  dtrun -np 4 python3 train.py
      4 ranks on this machine
  dtrun -np 16 -H s1:4,s2:4,s3:4,s4:4 python3 train.py
      4 ranks on each of 4 hosts, over ssh
  dtrun --hostfile hosts.txt python3 train.py
      one rank for every slot of the hosts listed in a file
  sbatch -N4 --ntasks-per-node=4 --wrap 'dtrun python3 train.py'
      in a batch job, hosts and ranks come from the batch system
  dtrun -H s1:4,s2:4 --plan python3 train.py
      shows which rank would run where, and starts nothing
  dtrun -H s1:4,s2:4 -x NCCL_DEBUG=INFO --output-dir logs python3 train.py
      sets a variable for every rank; also writes their output to files
  dtrun -H s1:4,s2:4 OMP_NUM_THREADS=8 python3 train.py --epochs 3
      sets a variable, too; what follows the program belongs to the program

Options go before the program; a value is the next word or follows '='. Flags of
mpirun, srun and horovodrun are understood, too: `dtrun help words`.

Other commands, each with a --help of its own:
)";

constexpr std::string_view kExit = R"(
Exit code: 0 if every rank exits 0, else that of the first rank that failed; 130
after Ctrl-C; from 200 on, dtrun's own: `dtrun help exit-codes`.
)";

constexpr std::string_view kExitIntroduction =
    R"(0 if every rank exits 0; else the exit code of the first rank that failed; or
dtrun's own:
)";

constexpr std::size_t kExitMiddle = 24;  // where their meanings begin

}  // namespace

std::span<const HelpSection> run_sections() {
    static constexpr HelpSection kSections[] = {
        {FlagGroup::hosts, "Ranks and hosts"},
        {FlagGroup::binding, "Processors of ranks"},
        {FlagGroup::environment, "What ranks start with"},
        {FlagGroup::reaching, "Reaching the hosts"},
        {FlagGroup::output, "Output"},
        {FlagGroup::ending, "The end of the job"},
        {FlagGroup::elastic, "Elastic jobs"},
        {FlagGroup::look, "Looking into ranks"},
        {FlagGroup::publishing, "Showing the job"},
        {FlagGroup::other, "About dtrun"},
    };
    return kSections;
}

std::string_view usage_line() {
    return "usage: dtrun [run] [options] [VAR=VALUE...] program [args...]";
}

std::string run_help(Commands commands) {
    std::vector<Flag> common(run_flags().flags().begin(), run_flags().flags().end());
    std::erase_if(common, [](const Flag& flag) { return !flag.common; });
    std::string options = "\nThe most common options (all of them: `dtrun help all`):\n";
    for (const HelpSection& section : run_sections()) options += flag_rows(common, section.group);
    return fmt::format("{}\n{}{}{}{}", usage_line(), kIntroduction, command_rows(commands), options,
                       kExit);
}

std::string all_flags_help() {
    return fmt::format("{}\n{}", usage_line(), sections(run_flags().flags(), run_sections()));
}

std::string horovod_help() {
    const std::span<const Flag> flags = run_flags().flags();
    std::vector<Flag> own(flags.begin(), flags.end());
    std::erase_if(own, [](const Flag& flag) { return flag.group != FlagGroup::horovod; });
    return "Horovod's settings, set by the flags of horovodrun (default: Horovod's own, or\nyour "
           "HOROVOD_* variables):\n" +
           flag_rows(own, FlagGroup::horovod) + "\nRefused flags of horovodrun:\n" + refusals(own);
}

std::string exit_codes_help() {
    std::string text(kExitIntroduction);
    for (const plan::ExitCodeRow& row : plan::kExitCodes)
        text += two_columns(fmt::format("{} {}", row.written, row.name), row.when, kExitMiddle);
    return text;
}

}  // namespace dtrun::cli
