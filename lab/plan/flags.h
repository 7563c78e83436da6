#pragma once

#include "launcher/cli/flags.h"

#include <span>
#include <string>

namespace dtrun::lab {

/// `dtrun bench`: its flags, its parser and its --help.
const cli::Flags& bench_flags();
Result<cli::CommandLine> parse_bench(std::span<const std::string> words,
                                     plan::EnvironmentView environment);
std::string bench_help();

}  // namespace dtrun::lab
