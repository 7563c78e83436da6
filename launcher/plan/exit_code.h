#pragma once

#include <string_view>

namespace dtrun::plan {

/// What dtrun exits with when the cause is not a rank's own exit code. kExitCodes says when.
enum ExitCode : int {
    kExitNotExecutable = 126,
    kExitProgramMissing = 127,
    kExitSignalBase = 128,  ///< + n
    kExitUsage = 200,
    kExitUnreachable = 201,
    kExitAuthentication = 202,
    kExitAgent = 203,
    kExitLost = 204,
    kExitTimeout = 205,
    kExitStuck = 206,
    kExitCannotGoOn = 207,
    kExitInternal = 210,
};

/// One row of --help, the man page and docs/EXIT_CODES.md.
struct ExitCodeRow {
    ExitCode code{};
    std::string_view written;
    std::string_view name;
    std::string_view when;
    /// A host has failed: so would any other run that needs it.
    bool of_host = false;
};

/// The exit codes, which are part of the interface, by number.
inline constexpr ExitCodeRow kExitCodes[] = {
    {kExitNotExecutable, "126", "not executable",
     "the program or its directory (--wdir) cannot be used on some host", true},
    {kExitProgramMissing, "127", "not found", "the program is not there on some host", true},
    {kExitSignalBase, "128+n", "signal n",
     "signal n ended the first rank that failed, or dtrun itself (130: Ctrl-C)"},
    {kExitUsage, "200", "usage",
     "what was written cannot be meant: command line, hostfile, --env-file, configuration, a file "
     "that cannot be made there, a network interface that a host lacks, an --ssh-command or mpirun "
     "that is not there"},
    {kExitUnreachable, "201", "unreachable",
     "a host, the daemon of dtrun join, or the node that serves a job of torchrun: unknown name, "
     "refused, no route, no answer within --connect-timeout",
     true},
    {kExitAuthentication, "202", "authentication",
     "a host does not let us in: keys, unknown or changed host key; a daemon has another secret",
     true},
    {kExitAgent, "203", "agent",
     "a host's agent cannot be copied or started, or cannot reach this machine, or the agent that "
     "belongs to dtrun is missing here; its --health-check has not ended well",
     true},
    {kExitLost, "204", "lost",
     "a host or its agent was lost while the job ran; dtrun join: the job ended elsewhere, or its "
     "daemon is gone"},
    {kExitTimeout, "205", "timeout",
     "not every rank was running within --start-timeout, or the job has taken longer than "
     "--timeout",
     true},
    {kExitStuck, "206", "stuck",
     "ranks wait in MPI or in a store of their framework for one that will not come, or longer "
     "than --init-timeout; a rank cannot have MPI"},
    {kExitCannotGoOn, "207", "cannot go on",
     "an elastic job has had fewer ranks than --min-np for --elastic-timeout, or has changed more "
     "often than --reset-limit or failed more often than --failure-limit allows"},
    {kExitInternal, "210", "internal",
     "dtrun itself failed: out of descriptors, no room for the files of --output-dir, a kernel or "
     "a "
     "container's seccomp profile that lacks what it needs"},
};

}  // namespace dtrun::plan
