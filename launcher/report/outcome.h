#pragma once

#include "base/numbered.h"
#include "base/result.h"
#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {
enum class HostProblem : std::uint8_t;
}

namespace dtrun::report {

/// Why a host could not take part, for grouping and for the exit code.
enum class StartFailure : std::uint8_t {
    unreachable,
    timed_out,
    denied,
    agent,
    program_missing,
    not_executable,
    directory_missing,
    mpi,    ///< the program's MPI cannot be served there
    usage,  ///< a word of the command line is wrong there
};

/// Of a host to which no agent gets, or whose agent does not come.
StartFailure failure_kind(Errc code);
/// Of a host whose agent has found that it cannot take part.
StartFailure failure_kind(HostProblem problem);
/// As the document of --report has it.
std::string_view name_of(StartFailure kind);

struct HostFailure {
    HostId host{};
    StartFailure kind = StartFailure::agent;
    std::string text;  ///< without the host's name
};

/// How a job ended, for the report and the exit code.
struct JobOutcome {
    enum class Cause : std::uint8_t {
#define DTRUN_CAUSE(name, code) name,
#include "launcher/report/causes.def"
    };
    Cause cause = Cause::success;
    std::vector<HostFailure> host_failures;  ///< by host; of an elastic job, the last of each
    std::optional<Exited> first;             ///< the first rank that failed
    HostId lost_host{};
    std::string lost_text;
    std::string gone_text{};  ///< who has ended agents and ranks from outside; empty: not known
    std::string ended_text;
    bool refused = false;  ///< by a daemon that was reached
    int signal = 0;
    /// A rank that ended by itself, with code 0.
    struct EndedWell {
        Rank rank{};
        std::int64_t ran_ns = 0;
    };
    std::vector<EndedWell> ended_well{};  ///< before there was a cause
    std::uint32_t well = 0;         ///< ranks that ended by themselves with code 0, at any time
    std::uint32_t well_needed = 0;  ///< so many make the job a success; 0: all
    std::uint32_t also_failed = 0;  ///< ranks that failed by themselves after the first
    std::vector<Exited> later{};    ///< some of these, without their tracebacks
    std::uint32_t victims = 0;      ///< ranks that dtrun ended because of it
    std::uint32_t killed = 0;       ///< of the victims, those that needed SIGKILL
    std::uint32_t orphans = 0;      ///< processes that ranks had left behind
    std::uint32_t restarts = 0;     ///< of all ranks, because one had failed
    std::vector<std::string> waiting{};  ///< who waited for what when it ended
    std::vector<std::string> stacks{};   ///< where ranks were when they were found to hang
};

/// As events and views have it.
std::string_view name_of(JobOutcome::Cause cause);

/// The process's exit status for an outcome. Pure; the table is tested.
int exit_code(const JobOutcome& outcome);

}  // namespace dtrun::report
