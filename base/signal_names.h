#pragma once

#include <string>
#include <string_view>

namespace dtrun {

/// "SIGTERM" of 15; empty for a number without a name, as of a real-time signal. (sigabbrev_np() of new glibcs
/// does the same.)
std::string_view signal_name(int signal);

/// The same, or the number where there is no name.
std::string signal_word(int signal);

}  // namespace dtrun
