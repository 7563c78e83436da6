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
    if (!maps.contains("/libtorch_python.so") ||
        std::ranges::any_of(kOtherMeetings, [&](const char* name) { return maps.contains(name); }))
        return false;
    return !is_connected(process, value_of(environment, "MASTER_PORT"));
}

namespace {

/// Where a rank or a process below it looks for torch's store, if that is not where dtrun serves it.
std::optional<std::string> elsewhere(const std::string& environment, pid_t process, bool is_rank) {
    const std::string own = is_rank ? environment : environment_of(process);
    if (const auto address = store_elsewhere(environment, own))
        return fmt::format("{}, an address that a launcher within the rank has chosen", *address);
    if (seems_to_look_elsewhere(process, own))
        return "an address that the program has chosen itself, it seems (tcp://...)";
    return std::nullopt;
}

}  // namespace

std::vector<RankWait> waits_elsewhere(std::span<const RunningRank> ranks) {
    std::vector<pid_t> roots;
    for (const RunningRank& rank : ranks) roots.push_back(rank.pid);
    if (roots.empty() || !takes_it_as_served(environment_of(roots.front()))) return {};
    const auto below = descendants_of_each(roots);
    std::vector<RankWait> waits;
    for (std::size_t i = 0; i < roots.size(); ++i) {
        const std::string environment = environment_of(roots[i]);
        auto where = elsewhere(environment, roots[i], true);
        for (std::size_t p = 0; p < below[i].size() && !where; ++p)
            where = elsewhere(environment, below[i][p], false);
        if (!where) return waits;  // ranks do the same, and this takes a while
        RankWait& wait = waits.emplace_back();
        wait.rank = ranks[i].rank;
        wait.pid = roots[i];
        wait.what =
            fmt::format("torch's store at {}, where dtrun serves none: use --store rank0", *where);
    }
    return waits;
}

}  // namespace dtrun::ranks
