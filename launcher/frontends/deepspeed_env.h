#pragma once

#include "base/result.h"
#include "launcher/plan/environment.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::frontends {

/// What .deepspeed_env files say.
struct DeepspeedEnv {
    std::vector<std::pair<std::string, std::string>> variables;  ///< in order; the last one counts
    std::vector<std::string> notes;  ///< names that were left out, ready to be shown
};

/// Reads lines NAME=value: the first '=' divides, blanks around both are dropped, and so is a pair
/// of quotes around the value. Blank lines and lines that begin with '#' are nothing. Names that
/// are dtrun's own for each rank are left out, with a note: tools write all they have to the file.
/// $NAME and ${NAME} become what a line above or the caller has for NAME, or nothing, unless the value is in
/// single quotes: DeepSpeed has the shells of the hosts export the lines. What only a shell could do stays as
/// it is, with a note.
/// \param file    what messages call it
/// \param above   variables that other files have set before
/// Errc: invalid_input "<file>:<line>:<column>: ..."
Result<DeepspeedEnv> parse_deepspeed_env(std::string_view text, std::string_view file,
                                         plan::EnvironmentView caller = {},
                                         const DeepspeedEnv& above = {});

/// Reads the file that DS_ENV_FILE names, else .deepspeed_env: if its path is relative, that in
/// $HOME and then that in the working directory.
/// Errc: invalid_input, denied
Result<DeepspeedEnv> read_deepspeed_env(plan::EnvironmentView environment);

}  // namespace dtrun::frontends
