#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <chrono>
#include <string>
#include <vector>

namespace dtrun::commands {

/// `dtrun stacks` and `dtrun attach`: commands that ask the head of a running job, on this machine.
struct LookCommand {
    std::vector<std::string> operands;  ///< [JOB], and for attach RANK
    std::chrono::milliseconds timeout{30'000};
    int signal = 0;       ///< stacks: --signal; 0: none
    bool native = false;  ///< stacks: --native
};

struct ParsedLook : cli::ParsedArgs {
    LookCommand own;
};

const cli::FlagTable<ParsedLook>& attach_flags();
const cli::FlagTable<ParsedLook>& stacks_flags();
/// Errc: invalid_input
Result<ParsedLook> parse_stacks(cli::Words words);
Result<ParsedLook> parse_attach(cli::Words words);

/// \return the process's exit status
int run_stacks(cli::Words words, plan::EnvironmentView environment);
int run_attach(cli::Words words, plan::EnvironmentView environment);

std::string stacks_help();
std::string attach_help();

}  // namespace dtrun::commands
