#include "launcher/report/outcome.h"

#include "launcher/plan/exit_code.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>

namespace dtrun::report {
namespace {

int failure_code(StartFailure kind) {
    switch (kind) {
        case StartFailure::unreachable:
        case StartFailure::timed_out:
            return plan::kExitUnreachable;
        case StartFailure::denied:
            return plan::kExitAuthentication;
        case StartFailure::agent:
            return plan::kExitAgent;
        case StartFailure::program_missing:
            return plan::kExitProgramMissing;
        case StartFailure::not_executable:
        case StartFailure::directory_missing:
            return plan::kExitNotExecutable;
        case StartFailure::mpi:
            return plan::kExitStuck;
        case StartFailure::usage:
            return plan::kExitUsage;
    }
    return plan::kExitInternal;
}

/// MPI_Abort takes any number. Its low 8 bits may be 0, but the job has failed.
int code_of(const Exited& rank) {
    return rank.signal != 0 ? plan::kExitSignalBase + rank.signal : std::max(rank.code & 0xff, 1);
}

}  // namespace

StartFailure failure_kind(Errc code) {
    switch (code) {
        case Errc::not_found:
        case Errc::unreachable:
            return StartFailure::unreachable;
        case Errc::timed_out:
            return StartFailure::timed_out;
        case Errc::denied:
            return StartFailure::denied;
        case Errc::invalid_input:
            return StartFailure::usage;
        default:
            return StartFailure::agent;
    }
}

StartFailure failure_kind(HostProblem problem) {
    switch (problem) {
        case HostProblem::program_missing:
            return StartFailure::program_missing;
        case HostProblem::not_executable:
            return StartFailure::not_executable;
        case HostProblem::directory_missing:
            return StartFailure::directory_missing;
        case HostProblem::mpi:
            return StartFailure::mpi;
        case HostProblem::unhealthy:
            return StartFailure::agent;
        default:  // it has none of the network interfaces, or too few processors
            return StartFailure::usage;
    }
}

std::string_view name_of(JobOutcome::Cause cause) {
    switch (cause) {
#define DTRUN_CAUSE(name, code)   \
    case JobOutcome::Cause::name: \
        return #name;
#include "launcher/report/causes.def"
    }
    return "success";
}

std::string_view name_of(StartFailure kind) {
    switch (kind) {
        case StartFailure::unreachable:
            return "unreachable";
        case StartFailure::timed_out:
            return "timed_out";
        case StartFailure::denied:
            return "denied";
        case StartFailure::agent:
            return "agent";
        case StartFailure::program_missing:
            return "program_missing";
        case StartFailure::not_executable:
            return "not_executable";
        case StartFailure::directory_missing:
            return "directory_missing";
        case StartFailure::mpi:
            return "mpi";
        case StartFailure::usage:
            return "usage";
    }
    return "agent";
}

int exit_code(const JobOutcome& outcome) {
    const bool some_failed = outcome.cause == JobOutcome::Cause::rank_failed ||
                             outcome.cause == JobOutcome::Cause::host_lost;
    if (some_failed && outcome.well_needed > 0 && outcome.well >= outcome.well_needed) return 0;
    switch (outcome.cause) {
#define DTRUN_CAUSE(name, code)   \
    case JobOutcome::Cause::name: \
        return code;
#include "launcher/report/causes.def"
    }
    return plan::kExitInternal;
}

}  // namespace dtrun::report
