#pragma once

#include "launcher/cli/command.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::cli {

/// What may stand where the cursor is.
struct Completion {
    enum class Kind {
        words,     ///< one of `words`
        files,     ///< a file's name
        programs,  ///< a program's name, or one of `words`
        rest,      ///< whatever the program before it takes
        jobs,      ///< a job that runs here
        records,   ///< a job that has a record
        nothing,   ///< what nobody can guess, such as a number
    };
    Kind kind = Kind::nothing;
    std::vector<std::pair<std::string, std::string>> words{};  ///< each with what it does
    std::string begin{};  ///< of what is typed there, as "rank,ho" of "--tag=rank,ho" has "--tag="
};

/// Pure. \param words  what stands behind `dtrun`; the last is not finished, and may be empty
Completion complete(Commands commands, Words words);

/// The script by which a shell asks `dtrun completion SHELL-words LINE`. \param shell  bash, zsh or fish
/// Errc: invalid_input (another shell)
Result<std::string> completion_script(std::string_view shell);

/// The answer to that, for the script: the kind, then each word, with what it does behind a tab.
/// \param of_value  words take the place of a flag's value alone, as in bash, and not of flag and value
std::string completion_lines(const Completion& completion, bool of_value);

}  // namespace dtrun::cli
