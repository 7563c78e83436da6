#pragma once

#include "launcher/cli/run.h"

#include <string>

namespace dtrun::cli {

/// Words that other launchers have and dtrun has not: each does what it means with what is here, or is
/// refused with the words to use instead. Flags that dtrun has under another name have Flag::also.
Rows<ParsedRun> foreign_flags();

/// All words of other launchers that `dtrun run` knows, for a person: `dtrun help words`.
std::string words_help();

}  // namespace dtrun::cli
