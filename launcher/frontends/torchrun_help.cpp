// The text of `dtrun torchrun --help`.

#include "launcher/cli/help.h"
#include "launcher/frontends/torchrun.h"

namespace dtrun::frontends {
namespace {

constexpr std::string_view kTorchrunIntroduction =
    R"(usage: dtrun torchrun [options] [--] script [args...]

Takes torchrun's flags and starts all nodes with one command: there are no
rendezvous endpoint and no node ranks, and ssh or the batch system takes the
place of a shell on every machine. PET_* variables are defaults, as they are for
torchrun. A link to dtrun that is named torchrun does the same.

Examples:
  dtrun torchrun --standalone --nproc-per-node 4 train.py
      4 ranks on this machine
  dtrun torchrun --nnodes 4 --nproc-per-node 2 -H s1,s2,s3,s4 train.py
      2 ranks on each of 4 hosts, over ssh
  sbatch -N4 --gpus-per-node 8 --wrap \
      'dtrun torchrun --nproc-per-node gpu train.py'
      in a batch job, the hosts come from the batch system
  dtrun torchrun --nproc-per-node 2 --log-dir logs --tee 3 train.py
      writes output to files, too, and shows it after [default0]:

${local_rank} in an argument is each rank's own.

Flags of torchrun:
)";

constexpr std::string_view kTorchrunEnd = R"(
Exit code: 0 if every rank exits 0; else that of the first rank that failed, and
not always 1 as with torchrun; see dtrun --help.
)";

}  // namespace

std::string torchrun_help() {
    const std::span<const cli::Flag> flags = torchrun_flags().flags();
    return std::string(kTorchrunIntroduction) + cli::flag_rows(flags, cli::FlagGroup::native) +
           "\nRefused flags:\n" + cli::refusals(flags) + "\ndtrun's own, as in dtrun --help:\n" +
           cli::sections(flags, cli::run_sections()) + std::string(kTorchrunEnd);
}

}  // namespace dtrun::frontends
