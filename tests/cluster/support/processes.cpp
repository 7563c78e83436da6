#include "tests/cluster/support/processes.h"

#include "base/fd.h"
#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

namespace dtrun::cluster {
namespace {

namespace fs = std::filesystem;

/// Names of the daemons that slurm.py starts; slurmstepd, which holds a job, is not one of them.
constexpr std::array<std::string_view, 4> kDaemons{"munged", "slurmctld", "slurmscriptd", "slurmd"};

/// The rest of a line of /proc/PID/status that starts with `key`.
std::string_view field(std::string_view status, std::string_view key) {
    for (const std::string_view line : split(status, '\n')) {
        if (line.starts_with(key)) return trim(line.substr(key.size()));
    }
    return {};
}

std::string pid_namespace(pid_t pid) {
    std::error_code gone;
    return fs::read_symlink(fmt::format("/proc/{}/ns/pid", pid), gone);
}

/// Describes a process; nothing if it has ended meanwhile or is a zombie.
std::optional<Process> describe(pid_t pid) {
    const auto status = read_file(fmt::format("/proc/{}/status", pid));
    const auto cmdline = read_file(fmt::format("/proc/{}/cmdline", pid));
    if (!status || !cmdline) return {};
    const std::string_view state = field(*status, "State:");
    if (state.empty() || state[0] == 'Z' || state[0] == 'X') return {};
    const std::vector<std::string_view> pids = split(field(*status, "NSpid:"), '\t');
    Process process{pid, static_cast<pid_t>(to_int(pids.back(), 1, 1 << 30).value_or(0)),
                    std::string(field(*status, "Name:")), *cmdline};
    const auto separates = [](char c) { return c == '\0' || c == '\n' || c == '\t'; };
    std::ranges::replace_if(process.cmdline, separates, ' ');
    process.cmdline = trim(process.cmdline);
    return process;
}

}  // namespace

std::vector<Process> list_processes(const Place& place) {
    const std::string space = pid_namespace(place.init);
    const auto sshd = read_file(fmt::format("/proc/{}/root/run/sshd.pid", place.init));
    const auto listening = to_int(trim(sshd.value_or("")), 1, 1 << 30).value_or(0);
    std::vector<Process> found;
    if (space.empty()) return found;
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
        const auto pid = to_int(entry.path().filename().native(), 1, 1 << 30);
        if (!pid || *pid == place.init || pid_namespace(static_cast<pid_t>(*pid)) != space) {
            continue;
        }
        std::optional<Process> process = describe(static_cast<pid_t>(*pid));
        if (!process || process->pid_inside == listening) continue;
        if (std::find(kDaemons.begin(), kDaemons.end(), process->name) != kDaemons.end()) continue;
        found.push_back(*std::move(process));
    }
    return found;
}

}  // namespace dtrun::cluster
