#include "launcher/history/process_mark.h"

#include "base/fd.h"
#include "base/interfaces.h"
#include "base/strings.h"

#include <fmt/format.h>
#include <unistd.h>
#include <climits>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrun::history {
namespace {

constexpr std::size_t kStartField =
    19;  // counted from the state, which is the first behind the name

/// The time at which a process has started; nothing: there is none, or it is only not yet waited for.
std::optional<std::uint64_t> start_of(pid_t pid) {
    const auto stat = read_file(fmt::format("/proc/{}/stat", pid));
    // The name stands in parentheses, and may have some itself.
    const std::size_t end = stat ? stat->rfind(") ") : std::string::npos;
    if (end == std::string::npos) return std::nullopt;
    const std::vector<std::string_view> fields =
        split(std::string_view(*stat).substr(end + 2), ' ');
    if (fields.size() <= kStartField || fields[0] == "Z" || fields[0] == "X") return std::nullopt;
    const auto ticks = to_int(fields[kStartField], 0, LLONG_MAX);
    if (!ticks) return std::nullopt;
    return static_cast<std::uint64_t>(*ticks);
}

}  // namespace

ProcessMark mark_of_this_process() {
    ProcessMark mark;
    mark.host = host_name();
    if (const auto boot = read_file("/proc/sys/kernel/random/boot_id")) mark.boot = trim(*boot);
    char space[64] = {};
    const ssize_t size = ::readlink("/proc/self/ns/pid", space, sizeof space);
    if (size > 0) mark.pid_space.assign(space, static_cast<std::size_t>(size));
    mark.pid = ::getpid();
    mark.started = start_of(mark.pid).value_or(0);
    return mark;
}

Life life_of(const ProcessMark& process, const ProcessMark& here) {
    if (process.boot != here.boot) return process.host == here.host ? Life::gone : Life::unknown;
    if (process.pid_space != here.pid_space) return Life::unknown;
    return start_of(process.pid) == process.started ? Life::runs : Life::gone;
}

}  // namespace dtrun::history
