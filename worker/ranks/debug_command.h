#pragma once

#include "base/result.h"
#include "rendezvous/wire/modes.h"
#include "worker/ranks/rank_process.h"

#include <cstdint>
#include <string>

namespace dtrun::ranks {

/// The debugger for a command: `wanted`, or if that is left to us debugpy for Python and else gdb.
Debugger debugger_for(const RankCommand& command, Debugger wanted);

/// Has a command wait, before it does anything, for a debugger to connect to a port of loopback.
/// \param debugger  debugpy or gdb
/// Errc: not_found (there is no gdbserver), invalid_input (debugpy, but it is no Python program); the message
/// is for the user
Result<void> wait_for_debugger(RankCommand& command, Debugger debugger, std::uint16_t port,
                               const std::string& path);

}  // namespace dtrun::ranks
