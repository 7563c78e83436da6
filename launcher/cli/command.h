#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::cli {

/// One sub-command of dtrun. main.cpp has the table of all.
struct Command {
    std::string_view name;
    std::string_view summary;  ///< for the list in `dtrun --help`; empty: it is not listed
    /// Reads the words behind the name, does what they say and returns the exit code. nullptr: no
    /// command, but a topic of `dtrun help`.
    int (*run)(Words words, plan::EnvironmentView environment);
    std::string (*help)();                       ///< whole lines of at most kHelpColumns
    std::span<const Flag> (*flags)() = nullptr;  ///< its options; nullptr: it has none
};

using Commands = std::span<const Command>;

/// The command that `words` begin with, nullptr if they begin with none.
const Command* find_command(Commands commands, Words words);

/// A row for each listed command or topic.
std::string command_rows(Commands commands);

/// What `dtrun help WORDS` prints; without words the help of the first command.
/// Errc: invalid_input, for a name that no command or topic has
Result<std::string> help_on(Commands commands, Words words);

/// "dtrun 0.1.0 (1a2b3c4, Release, x86_64)", and a line's end.
std::string version_text();

/// Shows an error. \return kExitUsage
int complain(const Error& error);

/// When the reader of standard output has gone, as `head` does that has enough: 128 + SIGPIPE, as of a program that
/// has no handler.
inline constexpr int kExitReaderGone = 141;

/// Writes to standard output. \return the exit code
int print(const std::string& text);

/// The text that was asked for. \param asked  help or version
std::string text_of(Ask asked, std::string (*help)());

/// What a command does first with its words: prints the error that is in them, or the text that
/// they ask for.
/// \param parsed  holds a struct with a member `asked`
/// \return the exit code if nothing else is left to do
template <class Parsed>
std::optional<int> settled(const Result<Parsed>& parsed, std::string (*help)()) {
    if (!parsed) return complain(parsed.error());
    if (parsed->asked == Ask::nothing) return std::nullopt;
    return print(text_of(parsed->asked, help));
}

}  // namespace dtrun::cli
