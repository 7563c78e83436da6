// The text of `dtrun --help`.

#include "base/text_layout.h"
#include "launcher/cli/run.h"
#include "launcher/plan/exit_code.h"

#include <fmt/format.h>

namespace dtrun::cli {

namespace {

constexpr std::string_view kIntroduction = R"(
Starts a training program on this machine or on many, gives each rank its place,
shows what they print and leaves nothing behind. Programs for Horovod, torch,
DeepSpeed or your own communicator run unmodified; horovodrun's flags work too.

Examples:
  dtrun -np 4 python train.py
      4 ranks on this machine
  dtrun -np 16 -H s1:4,s2:4,s3:4,s4:4 python train.py
      4 ranks on each of 4 hosts, over ssh
  dtrun --hostfile hosts.txt python train.py
      one rank for every slot of the hosts in a file
  sbatch -N4 --ntasks-per-node=4 --wrap 'dtrun python train.py'
      in a batch system hosts and ranks are its own
  dtrun -H s1:4,s2:4 --plan python train.py
      show which rank would run where, and start nothing
  dtrun -H s1:4,s2:4 -x NCCL_DEBUG=INFO --output-dir logs python train.py
      with a variable for every rank, and their output in files too
  dtrun -H s1:4,s2:4 OMP_NUM_THREADS=8 python train.py --epochs 3
      what follows the program belongs to the program

Options stand before the program, with their whole names; those of horovodrun
may be shortened as it allows. A value follows as the next word or after '='.

Other commands, each with a --help of its own:
)";

constexpr std::string_view kExit = R"(
Exit code: 0 if every rank exits 0; else that of the first rank that failed; or
dtrun's own:
)";

constexpr std::size_t kExitMiddle = 24;  // where their meanings begin

std::string exit_codes() {
    std::string text(kExit);
    for (const plan::ExitCodeRow& row : plan::kExitCodes)
        text += two_columns(fmt::format("{} {}", row.written, row.name), row.when, kExitMiddle);
    return text;
}

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
        {FlagGroup::other, "About dtrun"},
        {FlagGroup::horovod,
         "Horovod's settings (default: Horovod's own, or your HOROVOD_* variables)"},
    };
    return kSections;
}

std::string_view usage_line() {
    return "usage: dtrun [run] [options] [VAR=VALUE...] program [args...]";
}

std::string run_help(Commands commands) {
    const std::span<const Flag> flags = run_flags().flags();
    return fmt::format("{}\n{}{}{}\nRefused flags of horovodrun:\n{}{}", usage_line(),
                       kIntroduction, command_rows(commands), sections(flags, run_sections()),
                       refusals(flags), exit_codes());
}

}  // namespace dtrun::cli
