#pragma once

#include "base/result.h"
#include "launcher/environment.h"
#include "launcher/options.h"

#include <string>
#include <vector>

namespace dtrun {

/// What the user wants of this process.
struct CommandLine {
    enum class Kind { run, help, version, check_build };
    Kind kind = Kind::run;
    Options options;                    ///< with Kind::run
    std::string text;                   ///< otherwise: for standard output, whole lines
    std::vector<std::string> warnings;  ///< for standard error, one line each, without '\n'
};

/// Reads the command line; reads the --config-file and no other file.
///
/// Options end at the first word that is none, or at `--`. Long names may be shortened as long as
/// they stay unique, begin with one dash if they are whole, and contain '_' for '-'; a value is the
/// next word or follows '='. Given twice: the last value counts, lists add up. A flag always wins
/// over --config-file.
/// \param args         without argv[0]
/// \param environment  for HOROVOD_START_TIMEOUT
/// \return invalid_input for what the user should have written otherwise (exit code: usage), or
///         not_found, denied (--config-file)
Result<CommandLine> parse_command_line(const std::vector<std::string>& args,
                                       EnvironmentView environment);

}  // namespace dtrun
