#include "worker/ranks/store_elsewhere.h"

#include "base/fd.h"
#include "base/strings.h"
#include "worker/ranks/process_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string_view>

namespace dtrun::ranks {
namespace {

using namespace std::chrono_literals;

std::string_view value_of(const std::string& environment, std::string_view name) {
    const std::string before = fmt::format("{}{}=", '\0', name);
    const std::size_t at = environment.find(before);
    if (at == std::string::npos) return {};
    const std::string_view rest = std::string_view(environment).substr(at + before.size());
    return rest.substr(0, rest.find('\0'));
}

bool takes_it_as_served(const std::string& environment) {
    return value_of(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
}

constexpr const char* kTorch = "/libtorch_python.so";
/// What a process has loaded that does not look for torch's store.
constexpr const char* kOtherMeetings[] = {"/libdtrun.so", "/libdtrun_collectives.so", "/libmpi.so",
                                          "/horovod/"};

std::string text_of(pid_t process, const char* file) {
    return read_file(fmt::format("/proc/{}/{}", process, file)).value_or("");
}

/// For how long the first thread of a process sleeps, if it does as programs in C++ do: for a span, by the clock
/// of the day. Python's time.sleep() waits for a point of time by another clock, or calls select().
std::optional<std::chrono::nanoseconds> sleeps_for(pid_t process) {
    unsigned long call = 0, first = 0, flags = 0, third = 0;
    const std::string text = text_of(process, "syscall");
    if (std::sscanf(text.c_str(), "%lu %lx %lx %lx", &call, &first, &flags, &third) != 4)
        return std::nullopt;
    std::uint64_t at = 0;
    if (call == SYS_nanosleep)
        at = first;
    else if (call == SYS_clock_nanosleep && first == CLOCK_REALTIME && flags == 0)
        at = third;
    else
        return std::nullopt;
    const Fd memory(::open(fmt::format("/proc/{}/mem", process).c_str(), O_RDONLY | O_CLOEXEC));
    timespec span{};
    if (!memory || ::pread(memory.get(), &span, sizeof span, static_cast<off_t>(at)) !=
                       static_cast<ssize_t>(sizeof span))
        return std::nullopt;
    return std::chrono::seconds(span.tv_sec) + std::chrono::nanoseconds(span.tv_nsec);
}

/// Whether it sleeps as torch does between two attempts to connect: torch 1.13 for 1 s, torch 2 for a random number
/// of milliseconds, from a quarter of a second up to some minute.
bool sleeps_as_torch(pid_t process) {
    const auto span = sleeps_for(process);
    if (!span || *span < 250ms || *span > 90s) return false;
    return *span == 1s || (*span % 1ms == 0ns && *span % 1s != 0ns);
}

/// Whether somebody on the process's host is connected to that port.
bool is_connected(pid_t process, std::string_view port) {
    const auto number = to_int(port, 1, 65'535);
    if (!number) return true;  // then nothing can be said
    const std::string remote = fmt::format(":{:04X} 01 ", *number);
    return text_of(process, "net/tcp").contains(remote) ||
           text_of(process, "net/tcp6").contains(remote);
}

std::string address_of(const std::string& environment) {
    return fmt::format("{}:{}", value_of(environment, "MASTER_ADDR"),
                       value_of(environment, "MASTER_PORT"));
}

}  // namespace

/// A torchrun within the rank serves a store itself, and names a run of its own.
std::optional<std::string> store_elsewhere(const std::string& rank, const std::string& process) {
    if (!takes_it_as_served(process) ||
        value_of(process, "TORCHELASTIC_RUN_ID") != value_of(rank, "TORCHELASTIC_RUN_ID"))
        return std::nullopt;
    std::string address = address_of(process);
    if (address == address_of(rank)) return std::nullopt;
    return address;
}

bool seems_to_look_elsewhere(pid_t process, const std::string& environment) {
    if (!takes_it_as_served(environment) || !sleeps_as_torch(process)) return false;
    const std::string maps = text_of(process, "maps");
    if (!maps.contains(kTorch) ||
        std::ranges::any_of(kOtherMeetings, [&](const char* name) { return maps.contains(name); }))
        return false;
    return !is_connected(process, value_of(environment, "MASTER_PORT"));
}

std::optional<std::uint32_t> own_world(const std::string& rank, const std::string& process) {
    const std::string_view run = value_of(process, "TORCHELASTIC_RUN_ID");
    if (run.empty() || run == value_of(rank, "TORCHELASTIC_RUN_ID") ||
        value_of(process, "GROUP_WORLD_SIZE") != "1" || value_of(rank, "WORLD_SIZE") == "1")
        return std::nullopt;
    const auto size = to_int(value_of(process, "WORLD_SIZE"), 1, INT32_MAX);
    if (!size) return std::nullopt;
    return static_cast<std::uint32_t>(*size);
}

namespace {

enum class Evidence {
    environment,  ///< it has been sent elsewhere, or seems to try
    asleep,       ///< and it sleeps just now as torch does between two attempts
};

/// Where a rank or a process below it looks for torch's store, if that is not where dtrun serves it, and what to do.
std::optional<std::string> elsewhere(const std::string& environment, pid_t process, bool is_rank,
                                     Evidence evidence) {
    const std::string own = is_rank ? environment : environment_of(process);
    if (const auto address = store_elsewhere(environment, own);
        address && (evidence == Evidence::environment ||
                    (sleeps_as_torch(process) && text_of(process, "maps").contains(kTorch))))
        return fmt::format(
            "torch's store at {}, an address that a launcher within the rank has chosen, where "
            "dtrun serves none: have dtrun start the program instead of that launcher, or use "
            "--store rank0",
            *address);
    if (!seems_to_look_elsewhere(process, own)) return std::nullopt;
    // Processes of multiprocessing have a world for each rank, which is rarely what is wanted.
    const bool is_spawned = text_of(process, "cmdline").contains("multiprocessing");
    return fmt::format(
        "torch's store at an address that the program has chosen itself, it seems (tcp://...), "
        "where dtrun serves none: {}use --store rank0",
        is_spawned
            ? "for one world of what it spawns use -np 1; for one in each rank, each at a port "
              "of its own, "
            : "");
}

/// Processes below ranks.
using Below = std::vector<std::vector<pid_t>>;

Below processes_below(std::span<const RunningRank> ranks) {
    std::vector<pid_t> roots;
    for (const RunningRank& rank : ranks) roots.push_back(rank.pid);
    return descendants_of_each(roots);
}

/// Adds those of ranks that come first, until one that does not wait. \return whether all wait
bool add_waits(std::span<const RunningRank> ranks, const Below& processes, Evidence evidence,
               std::vector<RankWait>& waits) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const std::string environment = environment_of(ranks[i].pid);
        auto what = elsewhere(environment, ranks[i].pid, true, evidence);
        for (std::size_t p = 0; p < processes[i].size() && !what; ++p)
            what = elsewhere(environment, processes[i][p], false, evidence);
        if (!what) return false;
        RankWait& wait = waits.emplace_back();
        wait.rank = ranks[i].rank;
        wait.pid = ranks[i].pid;
        wait.what = std::move(*what);
        wait.stalled = true;
    }
    return true;
}

/// Ranks do the same, and a look at all of them and their threads takes a while: so it is only had where the first one waits.
/// \param of_first  processes below that
std::vector<RankWait> waits_of(std::span<const RunningRank> ranks, const Below& of_first,
                               Evidence evidence) {
    std::vector<RankWait> waits;
    const auto others = ranks.subspan(1);
    if (add_waits(ranks.first(1), of_first, evidence, waits) && !others.empty())
        add_waits(others, processes_below(others), evidence, waits);
    return waits;
}

std::string note_of(const RunningRank& rank, const std::string& environment,
                    const std::vector<pid_t>& below) {
    for (const pid_t process : below)
        if (const auto size = own_world(environment, environment_of(process)))
            return fmt::format(
                "rank {} has started torchrun, or a launcher that calls it, for a world of {} of "
                "its own, as have the others, it seems: {} worlds that know nothing of each other. "
                "For one, let dtrun start the program itself, or use dtrun torchrun",
                rank.rank, *size == 1 ? "1 process" : fmt::format("{} processes", *size),
                value_of(environment, "WORLD_SIZE"));
    return {};
}

}  // namespace

std::vector<RankWait> waits_elsewhere(std::span<const RunningRank> ranks) {
    if (ranks.empty() || !takes_it_as_served(environment_of(ranks.front().pid))) return {};
    return waits_of(ranks, processes_below(ranks.first(1)), Evidence::environment);
}

Nested look_for_nested(std::span<const RunningRank> ranks) {
    if (ranks.empty()) return {};
    const std::string first = environment_of(ranks.front().pid);
    if (value_of(first, "TORCHELASTIC_RUN_ID").empty()) return {};  // nobody expects torch
    const Below of_first = processes_below(ranks.first(1));
    Nested nested;
    if (ranks.front().rank == Rank{0})
        nested.note = note_of(ranks.front(), first, of_first.front());
    if (takes_it_as_served(first)) nested.waits = waits_of(ranks, of_first, Evidence::asleep);
    return nested;
}

}  // namespace dtrun::ranks
