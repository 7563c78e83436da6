#pragma once

namespace dtrun {

enum class ColorWish { of_terminal, never, always };

/// What the environment asks for, before the terminal is looked at: NO_COLOR none; else FORCE_COLOR or CLICOLOR_FORCE
/// colours, also in files and pipes; else CLICOLOR=0 none. An empty variable is none, FORCE_COLOR=0 asks for none, and
/// CLICOLOR_FORCE=0 for nothing (no-color.org, force-color.org, bixense.com/clicolors).
ColorWish color_wish();

/// Whether a terminal that we have takes no sequences for colours and for its cursor: TERM is "dumb", or not set.
bool is_terminal_dumb();

}  // namespace dtrun
