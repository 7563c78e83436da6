#pragma once

#include "base/fd.h"
#include "base/process/subprocess.h"
#include "base/result.h"
#include "rendezvous/wire/control_messages.h"

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::ranks {

struct RankCommand {
    std::string path;               ///< what to execute; absolute, or relative to `directory`
    std::vector<std::string> argv;  ///< argv[0] first
    std::vector<std::string> env;   ///< "NAME=value", all of it
    std::string directory;
    bool wants_input = false;  ///< else standard input is /dev/null
    int inherited = -1;        ///< a descriptor of ours that it gets besides, above 2; -1: none
    /// Linux shares out processors by session. Ranks that wait by yielding have to be in one, ours, to
    /// yield to each other; those that wait by spinning are not to be in ours.
    bool own_session = false;
    /// Its standard streams are a terminal of this size; needs own_session.
    std::optional<TerminalSize> terminal{};
    /// The soft limit of descriptors that it gets, at most ours; 0: ours.
    std::uint64_t descriptor_limit = 0;
    std::vector<unsigned> cpus{};  ///< that it may use; empty: ours
    /// Of `env`, the names of what may be another value at each start; sorted. Only needed for processes
    /// that are kept ready.
    std::vector<std::string> late{};
};

/// A rank that was started. Its descriptors are ours, non-blocking and close-on-exec.
struct RankProcess {
    pid_t pid = 0;
    Fd in;   ///< write end; empty unless it wants input
    Fd out;  ///< read end
    Fd err;  ///< read end
    ExecStatus executed;
    Fd terminal{};  ///< master of its terminal, in place of the three streams
};

/// Starts a rank: own process group, SIGKILL when we die, all signals at default.
/// Returns before it has executed anything. Errc: internal (no processes, no descriptors)
Result<RankProcess> spawn_rank(const RankCommand& command);

/// Whether the rank has executed its program; nothing while it is not known yet, which may take as long
/// as a file system likes. Errc: not_found, denied, internal
std::optional<Result<void>> exec_result(ExecStatus& executed);

/// Finds `program` as execvp would: as a path from `directory` if it has a slash, else along `path`
/// (the value of PATH). Errc: not_found, denied (found, but not executable); the message is for the
/// user and says what to write instead where that is known.
Result<std::string> find_program(const std::string& program, const std::string& directory,
                                 const std::string& path);

}  // namespace dtrun::ranks
