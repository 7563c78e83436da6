#pragma once

#include "launcher/cli/flags.h"

#include <span>
#include <string>

namespace dtrun::fronts {

/// `dtrun torchrun`: its flags, its parser and its --help.
const cli::Flags& torchrun_flags();
Result<cli::CommandLine> parse_torchrun(std::span<const std::string> words,
                                        plan::EnvironmentView environment);
std::string torchrun_help();

/// `dtrun deepspeed`: the same.
const cli::Flags& deepspeed_flags();
Result<cli::CommandLine> parse_deepspeed(std::span<const std::string> words,
                                         plan::EnvironmentView environment);
std::string deepspeed_help();

}  // namespace dtrun::fronts
