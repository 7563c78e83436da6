#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/history/history_folder.h"
#include "launcher/history/history_text.h"
#include "launcher/plan/environment.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::commands {

/// `dtrun logs`: what a detached job has printed.
struct LogsCommand {
    std::vector<std::string> operands;  ///< [JOB [RANK]]
    bool follow = false;
    bool timestamps = false;
    std::optional<std::uint64_t> tail;  ///< so many lines at the end; unset: all
};

struct ParsedLogs : cli::ParsedArgs {
    LogsCommand own;
};

const cli::FlagTable<ParsedLogs>& logs_flags();
/// Errc: invalid_input
Result<ParsedLogs> parse_logs(cli::Words words);
/// \return the process's exit status
int run_logs(cli::Words words, plan::EnvironmentView environment);
std::string logs_help();

/// `dtrun attach JOB`: shows all that is kept of a job's output, and what comes, to its end.
/// \return the job's exit code
int attach_to_job(std::string_view word, plan::EnvironmentView environment);

/// Where records are; empty: nowhere.
std::string history_here(plan::EnvironmentView environment);
/// The record that a person means, by a word that commands take for a job that runs, too. Errc: invalid_input
Result<history::Known> find_record(std::string_view word, plan::EnvironmentView environment);

/// Whether these words, behind `dtrun`, run a job again: `--again [JOB]`.
bool asks_again(cli::Words words);
/// The words of that job. This process goes to its directory, and the environment says so. Errc: invalid_input
Result<std::vector<std::string>> words_again(cli::Words words,
                                             std::vector<std::string>& environment);

}  // namespace dtrun::commands
