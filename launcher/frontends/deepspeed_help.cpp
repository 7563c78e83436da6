// The text of `dtrun deepspeed --help`.

#include "launcher/cli/help.h"
#include "launcher/frontends/deepspeed.h"

namespace dtrun::frontends {
namespace {

constexpr std::string_view kDeepspeedIntroduction =
    R"(usage: dtrun deepspeed [options] [--] script [args...]

Takes the flags of DeepSpeed's launcher and starts the ranks itself, without
pdsh or mpirun; when one process fails, all are ended. Ranks get the variables
that DeepSpeed reads, and the GPUs of their slots. A link to dtrun that is named
deepspeed does the same. Flags may be written with '_' or '-'.

Examples:
  dtrun deepspeed --num_gpus 4 train.py --deepspeed_config ds.json
      4 ranks on this machine
  dtrun deepspeed --hostfile hosts --include worker-0@worker-1:0,2 train.py
      all slots of one host and two of another
  srun hostname -s | dtrun hosts > hosts && dtrun deepspeed -H hosts train.py
      on the hosts of a batch job, which are also the default

.deepspeed_env (or DS_ENV_FILE) in your home or the current directory sets
variables.

Flags of DeepSpeed:
)";

constexpr std::string_view kDeepspeedEnd = R"(
Exit code: 0 if every rank exits 0; else that of the first rank that failed; see
dtrun --help.
)";

}  // namespace

std::string deepspeed_help() {
    const std::span<const cli::Flag> flags = deepspeed_flags().flags();
    return std::string(kDeepspeedIntroduction) + cli::flag_rows(flags, cli::FlagGroup::native) +
           "\nRefused flags of DeepSpeed:\n" + cli::refusals(flags) +
           "\ndtrun's own, as in dtrun --help:\n" + cli::sections(flags, cli::run_sections()) +
           std::string(kDeepspeedEnd);
}

}  // namespace dtrun::frontends
