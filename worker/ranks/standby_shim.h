#pragma once

#include <string_view>

namespace dtrun::ranks {

/// Text of the sitecustomize.py by which a Python interpreter becomes a process that is kept ready: it is
/// imported before the user's program is read.
///
/// It does what follows only where DTRUN_STANDBY_FD names a descriptor, a stream socket to the agent:
///
///     agent -> it   u32 bytes, names of modules, each ended by a 0
///     it -> agent   "P" once they are imported; or "E" and why they cannot be, and its end
///     agent -> it   u32 bytes, "NAME=value" of the rank's environment, each ended by a 0; with the first
///                   byte comes a descriptor, if the rank inherits one: that of PMI_FD
///
/// Then nothing of it is left in the interpreter, and the program starts. Numbers are little-endian.
extern const std::string_view kStandbyShim;

inline constexpr std::string_view kStandbyVariable = "DTRUN_STANDBY_FD";

}  // namespace dtrun::ranks
