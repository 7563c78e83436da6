#pragma once

#include "base/loop/asio.h"

namespace dtrun {

/// Runs the loop until `task` has ended, which is what the process is for, whatever else is still under way. An
/// exception that leaves it ends the process.
/// \param otherwise  the exit code where the loop has nothing more to do before that, which is a bug
/// \return what it yields
int run_to_exit(asio::io_context& io, asio::awaitable<int> task, int otherwise);

}  // namespace dtrun
