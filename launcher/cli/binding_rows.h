#pragma once

#include "launcher/cli/run.h"

namespace dtrun::cli {

/// The flags that say which processors ranks get.
Rows<ParsedRun> binding_flags();

/// Words of mpirun and srun for the same.
Rows<ParsedRun> foreign_binding_flags();

/// -N. Errc: invalid_input
Result<void> set_ranks_per_host(ParsedRun& parsed, std::string_view value);

/// A list of CPUs, "0-3,8". Errc: invalid_input
Result<void> set_cpus(ParsedRun& parsed, std::string_view value);

/// Takes the words of --binding-args for those flags, where dtrun itself starts the ranks.
/// Errc: invalid_input (a word that is none of them)
Result<void> read_binding_args(plan::Options& options);

/// As of --bind-to. Errc: invalid_input
Result<BindTo> parse_bind_to(std::string_view word);

}  // namespace dtrun::cli
