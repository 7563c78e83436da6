#pragma once

#include "worker/ranks/rank_process.h"

#include <string>

namespace dtrun::ranks {

/// Why a command cannot be kept ready: it has to be a Python interpreter that reads PYTHONPATH and imports
/// sitecustomize, or a script that names one in its first line. Any other command would begin with its
/// work at once, in a process that is no rank. Reads the first bytes of files.
/// \return empty: it can; else a text for the user
std::string why_not_standby(const RankCommand& command);

}  // namespace dtrun::ranks
