#pragma once

#include "launcher/cli/command.h"

#include <string>

namespace dtrun::cli {

/// The manual page of a command, in man(7)'s roff, made of its help and its table of flags; the first command's is
/// dtrun(1).
std::string man_page(Commands commands, const Command& command);

/// "dtrun-top.1", or "dtrun.1"
std::string man_file(Commands commands, const Command& command);

/// Whether the command has a page.
bool has_man_page(Commands commands, const Command& command);

}  // namespace dtrun::cli
