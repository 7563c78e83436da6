#pragma once

#include "launcher/cli/command.h"
#include "launcher/plan/environment.h"

#include <optional>
#include <string>

namespace dtrun::cli {

/// What to say of a first word that is neither a command nor a program, where it is known what was meant: "stauts", or
/// "cancel", as which other launchers have it. Also of `kill`, though it is a program: by mistake it would end somebody
/// else's process, so it has to be asked for by `dtrun run kill`.
/// \return Errc: not_found, invalid_input (kill)
std::optional<Error> misspelt_command(Commands commands, Words words,
                                      plan::EnvironmentView environment);

/// Where a flag of another launcher, for whose words there is a command of dtrun, stands among those of `dtrun run`: that
/// command with the words that it takes, and which it does not. Nothing: there is none, or too little is known of the
/// others.
std::optional<Error> front_end_meant(Commands commands, Words words);

/// A note where a program of PATH runs whose name is a command of other launchers: `dtrun ps`.
std::optional<std::string> note_on_program(Words words, plan::EnvironmentView environment);

}  // namespace dtrun::cli
