#include "launcher/warm/batch_job.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace dtrun::warm {
namespace {

/// \return 0: it has none, or nobody may look
pid_t parent_of(pid_t process) {
    const auto stat = read_file(fmt::format("/proc/{}/stat", process));
    if (!stat) return 0;
    // "17 (its name, of any characters) S 16 ..."
    const auto words = split(std::string_view(*stat).substr(stat->rfind(')') + 1), ' ');
    const auto parent =
        words.size() > 2 ? to_int(words[2], 1, std::numeric_limits<pid_t>::max()) : std::nullopt;
    return static_cast<pid_t>(parent.value_or(0));
}

/// Whether it was started with this variable.
bool has_variable(pid_t process, const std::string& variable) {
    const auto environment = read_file(fmt::format("/proc/{}/environ", process));
    return environment && std::ranges::count(split(*environment, '\0'), variable) > 0;
}

}  // namespace

std::string batch_job_here() {
    for (const char* const name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"})
        if (const char* const value = std::getenv(name)) return fmt::format("{}={}", name, value);
    return {};
}

Fd end_of_batch_job(const std::string& job) {
    if (job.empty()) return {};
    pid_t outermost = 0;
    for (pid_t process = ::getppid(); process > 1 && has_variable(process, job);
         process = parent_of(process))
        outermost = process;
    if (outermost == 0) return {};
    return Fd(static_cast<int>(::syscall(SYS_pidfd_open, outermost, 0)));
}

}  // namespace dtrun::warm
