#pragma once

#include <string>
#include <string_view>

namespace dtrun {

/// "SIGTERM" of 15; empty for a number without a name, as of a real-time signal. (sigabbrev_np() of new glibcs
/// does the same.)
std::string_view signal_name(int signal);

/// The same, or the number where there is no name.
std::string signal_word(int signal);

/// Both, for who reads what ended a process: "signal 9 (SIGKILL)", "signal 40 (real-time)".
std::string signal_text(int signal);

}  // namespace dtrun
