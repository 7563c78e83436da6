// Of test programs that run a head or agents in this process: as in dtrun's own main(), writing to somebody who has gone
// is an error, and no signal.

#include <csignal>

namespace {
[[maybe_unused]] const auto sigpipe_was = ::signal(SIGPIPE, SIG_IGN);
}
