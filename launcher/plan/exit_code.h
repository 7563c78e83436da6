#pragma once

namespace dtrun::plan {

/// What dtrun exits with when the cause is not a rank's own exit code. Part of the interface: listed
/// in --help, the man page and docs/EXIT_CODES.md.
enum ExitCode : int {
    kExitNotExecutable = 126,   ///< the program or its directory cannot be used, as shells have it
    kExitProgramMissing = 127,  ///< the program is not there
    kExitSignalBase = 128,      ///< + n: a rank, or dtrun itself, was ended by signal n
    kExitUsage = 200,           ///< command line, hostfile or environment
    kExitUnreachable = 201,     ///< a host: name, refused, no route, no answer
    kExitAuthentication = 202,  ///< a host: keys, host key
    kExitAgent = 203,           ///< a host: the agent cannot be copied, started, or reach back
    kExitLost = 204,            ///< a host or its agent was lost while the job ran
    kExitTimeout = 205,         ///< --start-timeout passed
    kExitStuck = 206,           ///< ranks wait for one that does not come, or cannot have MPI
    kExitInternal = 210,        ///< dtrun itself: out of descriptors, cannot write --output-dir
};

}  // namespace dtrun::plan
