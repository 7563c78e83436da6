#include "bench/rendezvous_process.h"

#include "base/fd.h"

#include <fmt/format.h>
#include <cstdlib>
#include <ctime>

namespace dtrun::bench {
namespace {

long kilobytes(const std::string& text, const char* name) {
    const std::size_t at = text.find(name);
    return at == text.npos ? 0 : std::strtol(text.c_str() + at + std::string(name).size(), {}, 10);
}

}  // namespace

Result<double> cpu_seconds(const Process& process) {
    clockid_t clock{};
    timespec used{};
    if (clock_getcpuclockid(process.pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return fail(Errc::not_found, "{}: no process {}", process.name, process.pid);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

Result<Memory> memory_of(const Process& process) {
    const auto rollup = read_file(fmt::format("/proc/{}/smaps_rollup", process.pid));
    if (!rollup) return fail(rollup.error(), "{}", process.name);
    return Memory{.rss_kb = kilobytes(*rollup, "\nRss:"), .pss_kb = kilobytes(*rollup, "\nPss:")};
}

}  // namespace dtrun::bench
