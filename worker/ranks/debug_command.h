#pragma once

#include "base/result.h"
#include "rendezvous/wire/modes.h"
#include "worker/ranks/rank_process.h"

#include <string>

namespace dtrun::ranks {

/// The debugger for a command: `wanted`, or if that is left to us debugpy for Python and else gdb.
Debugger debugger_for(const RankCommand& command, Debugger wanted);

/// Has a command wait, before it does anything, for a debugger.
/// \param debugger  debugpy or gdb
/// \param where     of debugpy "127.0.0.1:PORT", of gdbserver a directory with the pipes `in` and `out`,
///                  and `program.sh`, which gives the program its streams
/// \param path      where gdbserver is looked for
/// Errc: not_found (there is no gdbserver), invalid_input (debugpy, but it is no Python program); the message
/// is for the user
Result<void> wait_for_debugger(RankCommand& command, Debugger debugger, const std::string& where,
                               const std::string& path);

}  // namespace dtrun::ranks
