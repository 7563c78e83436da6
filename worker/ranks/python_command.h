#pragma once

#include "worker/ranks/rank_process.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// Why a command cannot be kept ready: it has to be a Python interpreter that reads PYTHONPATH and imports
/// sitecustomize, or a script that names one in its first line. Any other command would begin with its
/// work at once, in a process that is no rank. Reads the first bytes of files.
/// \return empty: it can; else a text for the user
std::string why_not_standby(const RankCommand& command);

/// How Python is told to run a program.
struct PythonWords {
    std::string path;                ///< of the interpreter
    std::vector<std::string> words;  ///< argv: the interpreter and its options, then the program
    std::size_t program = 0;         ///< where that begins: a file, "-m" or "-c"
};

/// The words by which Python runs a command. For a script that names it in its first line they begin with
/// that line's. Nothing: it is no Python program.
std::optional<PythonWords> python_words(const RankCommand& command);

}  // namespace dtrun::ranks
