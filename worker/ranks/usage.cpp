#include "worker/ranks/usage.h"

#include "base/fd.h"
#include "base/strings.h"
#include "worker/ranks/helper_run.h"
#include "worker/ranks/process_tree.h"
#include "worker/ranks/rank_process.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace dtrun::ranks {
namespace {

constexpr std::chrono::seconds kGpusAge{1};     // of an answer that is good enough
constexpr std::chrono::seconds kGpusLimit{20};  // of a run, which takes seconds without its daemon
constexpr std::size_t kGpusBytesMax = 64u << 10;
constexpr std::uint64_t kMiB = 1u << 20;
constexpr long long kNumberMax = std::numeric_limits<long long>::max();

std::string proc_file(pid_t pid, const char* file) {
    return read_file(fmt::format("/proc/{}/{}", pid, file), 4096).value_or("");
}

std::uint64_t number(std::string_view word) {
    return static_cast<std::uint64_t>(to_int(trim(word), 0, kNumberMax).value_or(0));
}

/// Processor time of a process and of those children of it that have ended, in nanoseconds.
std::uint64_t cpu_ns_of(pid_t pid) {
    const std::string stat = proc_file(pid, "stat");
    const std::size_t name_end = stat.rfind(')');  // a name may hold blanks
    if (name_end == std::string::npos) return 0;
    const auto words = split(std::string_view(stat).substr(name_end + 1), ' ');
    constexpr std::size_t kUserTime = 12, kTimes = 4;  // proc(5): fields 14 to 17
    if (words.size() < kUserTime + kTimes) return 0;
    std::uint64_t ticks = 0;
    for (std::size_t i = kUserTime; i < kUserTime + kTimes; ++i) ticks += number(words[i]);
    const auto per_second = static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
    return ticks * (1'000'000'000 / per_second);
}

/// Pages of a process in memory.
struct Pages {
    std::uint64_t own = 0, shared = 0;
};

Pages pages_of(pid_t pid) {
    const std::string statm = proc_file(pid, "statm");
    const auto words = split(statm, ' ');
    if (words.size() < 3) return {};
    const std::uint64_t resident = number(words[1]), shared = number(words[2]);
    return {resident - std::min(shared, resident), shared};
}

RankUsage usage_of(const RunningRank& rank, const std::vector<pid_t>& below) {
    RankUsage usage;
    usage.rank = rank.rank;
    usage.place = rank.place;
    usage.pid = rank.pid;
    std::uint64_t own = 0, shared = 0;
    const auto add = [&](pid_t pid) {
        const Pages pages = pages_of(pid);
        own += pages.own;
        shared = std::max(shared, pages.shared);
        usage.cpu_ns += cpu_ns_of(pid);
        ++usage.processes;
    };
    add(rank.pid);
    std::ranges::for_each(below, add);
    usage.memory_bytes = (own + shared) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return usage;
}

/// "MemTotal:       24689764 kB", of /proc/meminfo, in bytes
std::uint64_t memory_of(std::string_view meminfo, std::string_view name) {
    for (const std::string_view line : split(meminfo, '\n')) {
        if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
        const std::string_view value = trim(line.substr(name.size() + 1));
        return number(value.substr(0, value.find(' '))) * 1024;
    }
    return 0;
}

void measure_host(UsageReport& report) {
    report.processors = static_cast<std::uint32_t>(std::max(0L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    double load[1] = {};
    if (::getloadavg(load, 1) == 1) report.load_milli = static_cast<std::uint32_t>(load[0] * 1e3);
    const std::string meminfo = read_file("/proc/meminfo").value_or("");
    report.memory_total_bytes = memory_of(meminfo, "MemTotal");
    report.memory_bytes = report.memory_total_bytes -
                          std::min(report.memory_total_bytes, memory_of(meminfo, "MemAvailable"));
}

std::vector<std::string_view> cells(std::string_view line) {
    std::vector<std::string_view> cells = split(line, ',');
    for (std::string_view& cell : cells) cell = trim(cell);
    return cells;
}

}  // namespace

UsageReport measure_ranks(const std::vector<RunningRank>& ranks) {
    UsageReport report;
    report.at_ns = Clock::now().time_since_epoch().count();
    measure_host(report);
    std::vector<pid_t> roots;
    for (const RunningRank& rank : ranks) roots.push_back(rank.pid);
    if (roots.empty()) return report;
    const std::vector<std::vector<pid_t>> below = descendants_of_each(roots);
    for (std::size_t i = 0; i < ranks.size(); ++i)
        report.ranks.push_back(usage_of(ranks[i], below[i]));
    return report;
}

std::vector<GpuUsage> parse_gpus(std::string_view gpus, std::string_view processes,
                                 const std::function<Rank(pid_t)>& rank_of) {
    std::vector<GpuUsage> found;
    std::map<std::string_view, std::size_t> by_uuid;
    for (const std::string_view line : split(gpus, '\n')) {
        const auto words = cells(line);
        if (words.size() != 6 || !to_int(words[0], 0, 4096)) continue;
        GpuUsage gpu;
        gpu.index = static_cast<std::uint32_t>(number(words[0]));
        gpu.name = words[2];
        gpu.busy_percent =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(number(words[3]), 100));
        gpu.memory_bytes = number(words[4]) * kMiB;
        gpu.memory_total_bytes = number(words[5]) * kMiB;
        by_uuid[words[1]] = found.size();
        found.push_back(std::move(gpu));
    }
    for (const std::string_view line : split(processes, '\n')) {
        const auto words = cells(line);
        const auto gpu = words.size() == 2 ? by_uuid.find(words[0]) : by_uuid.end();
        if (gpu == by_uuid.end()) continue;
        GpuUsage& used = found[gpu->second];
        const Rank rank = rank_of(static_cast<pid_t>(to_int(words[1], 1, 1 << 30).value_or(0)));
        if (rank == kNoRank)
            ++used.strangers;
        else if (std::ranges::find(used.ranks, rank) == used.ranks.end())
            used.ranks.push_back(rank);
    }
    return found;
}

asio::awaitable<void> GpuWatch::ask(std::vector<RunningRank> ranks, contracts::Environment env) {
    if (asking_ || (asked_at_ && Clock::now() - *asked_at_ < kGpusAge)) co_return;
    asking_ = true;
    const auto path = env.find("PATH");
    const auto program = find_program("nvidia-smi", "/", path == env.end() ? "" : path->second);
    std::string texts[2];
    const char* const queries[2] = {
        "--query-gpu=index,uuid,name,utilization.gpu,memory.used,memory.total",
        "--query-compute-apps=gpu_uuid,pid"};
    for (std::size_t i = 0; program && i < 2; ++i) {
        RankCommand command{.path = *program, .argv = {}, .env = {"LC_ALL=C"}, .directory = "/"};
        command.argv = {"nvidia-smi", queries[i], "--format=csv,noheader,nounits"};
        const auto end =
            co_await run_helper(processes_, std::move(command), kGpusLimit, kGpusBytesMax);
        if (end && end->status == 0) texts[i] = end->out;
    }
    std::map<pid_t, Rank> rank_of;
    std::vector<pid_t> roots;
    for (const RunningRank& rank : ranks) roots.push_back(rank.pid);
    const auto below = texts[1].empty() ? std::vector<std::vector<pid_t>>(roots.size())
                                        : descendants_of_each(roots);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        rank_of[ranks[i].pid] = ranks[i].rank;
        for (const pid_t pid : below[i]) rank_of[pid] = ranks[i].rank;
    }
    last_ = parse_gpus(texts[0], texts[1], [&rank_of](pid_t pid) {
        const auto found = rank_of.find(pid);
        return found == rank_of.end() ? kNoRank : found->second;
    });
    asked_at_ = Clock::now();
    asking_ = false;
}

}  // namespace dtrun::ranks
