#pragma once
// `dtrun mpirun`: the words of mpirun and mpiexec, of Open MPI, MPICH and Intel MPI, for ranks that
// dtrun starts. A link of that name that leads to dtrun is the same.

#include "launcher/cli/run.h"

#include <string>

namespace dtrun::frontends {

/// The flags of `dtrun run`, and the few words that mean something else to mpirun.
const cli::FlagTable<cli::ParsedRun>& mpirun_flags();

/// Errc: as parse_run()
Result<cli::RunCommand> parse_mpirun(cli::Words words, plan::EnvironmentView environment);

std::string mpirun_help();

}  // namespace dtrun::frontends
