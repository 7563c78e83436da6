#pragma once

#include "launcher/cli/run.h"

#include <string>

namespace dtrun::commands {

const cli::FlagTable<cli::ParsedRun>& demo_flags();
/// A job whose program every host has by then: the agent. Errc: invalid_input, and those of finish_run()
Result<cli::RunCommand> parse_demo(cli::Words words, plan::EnvironmentView environment);
std::string demo_help();

}  // namespace dtrun::commands
