#pragma once
// `dtrun run`, the command that dtrun runs if none is named; and what other commands that start
// jobs share with it.

#include "base/result.h"
#include "launcher/cli/command.h"
#include "launcher/cli/flags.h"
#include "launcher/cli/help.h"
#include "launcher/cli/horovod_flags.h"
#include "launcher/cli/rsh_words.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/options.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cli {

/// What the words read so far say of a job.
struct ParsedRun : ParsedArgs {
    plan::Options options;
    HorovodValues tuning;
    bool tcp = false;
    std::string config_file;
    plan::ElasticOptions elastic;  ///< of a job that is elastic if ranks_min is set
    bool elastic_timeout_given = false;
    bool warn_time_given = false;
    std::string on_rank_failure;  ///< --on-rank-failure; empty if not given
    bool mpi_asked = false;       ///< --mpi asks for MPI that dtrun offers
    RshWords rsh;                 ///< of mpirun's words
};

/// What the words of a command that starts a job amount to.
struct RunCommand {
    Ask asked = Ask::nothing;  ///< if anything, the rest is empty
    plan::Options options{};
    std::vector<std::string> warnings{};  ///< for standard error, one line each, without '\n'
    std::string farewell{};  ///< for standard output, when the job has ended well; whole lines
};

/// The flags of `dtrun run`. Other commands take some of them.
const FlagTable<ParsedRun>& run_flags();

/// Where a ':' among the words separates two programs.
enum class NextProgram {
    with_options,  ///< before -np or -H: anything else is an argument of the program before
    always,
};

/// A command line by which `dtrun run` may be written.
struct RunDialect {
    const FlagTable<ParsedRun>& flags;  ///< begins with the rows of run_flags()
    NextProgram next_program;
    std::string_view usage;
    /// Adds what variables of the launcher say that this command stands for, where no word says it; may be null.
    void (*follow_variables)(ParsedRun& parsed, plan::EnvironmentView environment) = nullptr;
    bool takes_unset = false;  ///< -x of a variable that is not set here is a note, and no error
};

/// Reads what follows `dtrun` or `dtrun run`, and the --config-file. Options end at the first word
/// that is none, or at `--`. Lists that are given twice add up. A flag always wins over
/// --config-file.
/// \param environment  for HOROVOD_START_TIMEOUT
/// \return invalid_input for what the user should have written otherwise (exit code: usage), or
///         not_found, denied (--config-file)
Result<RunCommand> parse_run(Words words, plan::EnvironmentView environment);
/// The same in another dialect.
Result<RunCommand> parse_dialect(Words words, plan::EnvironmentView environment,
                                 const RunDialect& dialect);

/// `dtrun --help`: what a newcomer needs.
std::string run_help(Commands commands);
/// `dtrun help all`: every flag of `dtrun run` but Horovod's settings.
std::string all_flags_help();
/// `dtrun help horovod`.
std::string horovod_help();
/// `dtrun help exit-codes`.
std::string exit_codes_help();
std::string_view usage_line();
/// The titles of its sections, in order.
std::span<const HelpSection> run_sections();

// For other commands that start jobs.

/// Reads [VAR=VALUE...] program [args...].
/// \param usage  what to show if there is no program
Result<void> read_program(ParsedRun& parsed, const Rest& rest, std::string_view usage);
/// Makes a command of its arguments: looks for contradictions, reads --config-file.
Result<RunCommand> finish_run(ParsedRun parsed, plan::EnvironmentView environment);
/// Takes HOROVOD_START_TIMEOUT unless a flag has said it.
Result<void> add_start_timeout(plan::Options& options, plan::EnvironmentView environment);
/// The user's own address and port of torch's store (empty, unset: dtrun's), which rank 0 then
/// serves.
void set_master(plan::Options& options, const std::string& address, std::optional<int> port);
/// "python3", or "python" where PATH has only that.
std::string python_command(plan::EnvironmentView environment);

}  // namespace dtrun::cli
