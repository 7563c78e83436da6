// What ranks use.
#include "tests/support/catch.h"
#include "worker/ranks/usage.h"

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <vector>

using namespace dtrun;
using namespace dtrun::ranks;

namespace {

/// A child that has used a tenth of a second of processor time, 32 MiB, and a process of its own.
pid_t busy_child() {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::setpgid(0, 0);
        std::vector<char> memory(32u << 20, 1);
        timespec used{};
        do {
            ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            memory[static_cast<std::size_t>(used.tv_nsec) % memory.size()] ^= 1;
        } while (used.tv_nsec < 100'000'000 && used.tv_sec == 0);
        if (::fork() == 0) {
            ::pause();
            ::_exit(0);
        }
        if (::write(ready[1], "x", 1) != 1) ::_exit(1);
        ::pause();
        ::_exit(memory[0]);
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return pid;
}

}  // namespace

TEST_CASE("a rank's processor time and memory are those of all its processes", "[ranks]") {
    const pid_t pid = busy_child();
    const UsageReport report = measure_ranks({{Rank{5}, pid}});
    REQUIRE(report.ranks.size() == 1);
    const RankUsage& usage = report.ranks.front();
    CHECK(usage.rank == Rank{5});
    CHECK(usage.pid == pid);
    CHECK(usage.processes == 2);
    CHECK(usage.cpu_ns >= 50'000'000);
    CHECK(usage.cpu_ns < 10'000'000'000);
    CHECK(usage.memory_bytes >= 32u << 20);
    CHECK(report.processors > 0);
    CHECK(report.memory_total_bytes > report.memory_bytes);
    CHECK(report.memory_bytes > 0);
    ::kill(-pid, SIGKILL);  // and what it has started
    ::waitpid(pid, nullptr, 0);
}

TEST_CASE("a rank that has gone meanwhile has used nothing", "[ranks]") {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(0);
    ::waitpid(pid, nullptr, 0);
    const UsageReport report = measure_ranks({{Rank{0}, pid}});
    REQUIRE(report.ranks.size() == 1);
    CHECK(report.ranks.front().cpu_ns == 0);
    CHECK(report.ranks.front().memory_bytes == 0);
}

TEST_CASE("what nvidia-smi says is GPUs, and whose processes use them", "[ranks]") {
    const auto rank_of = [](pid_t pid) { return pid < 100 ? static_cast<Rank>(pid) : kNoRank; };
    const auto gpus = parse_gpus(
        "0, GPU-aa, NVIDIA H100 80GB HBM3, 97, 1024, 81559\n"
        "1, GPU-bb, NVIDIA H100 80GB HBM3, [N/A], 0, 81559\n"
        "No devices were found\n\n",
        "GPU-aa, 7\nGPU-aa, 8\nGPU-aa, 7\nGPU-aa, 4242\nGPU-zz, 9\nnothing\n", rank_of);
    REQUIRE(gpus.size() == 2);
    CHECK(gpus[0].name == "NVIDIA H100 80GB HBM3");
    CHECK(gpus[0].busy_percent == 97);
    CHECK(gpus[0].memory_bytes == 1024ull << 20);
    CHECK(gpus[0].memory_total_bytes == 81559ull << 20);
    CHECK(gpus[0].ranks == std::vector<Rank>{Rank{7}, Rank{8}});
    CHECK(gpus[0].strangers == 1);
    CHECK(gpus[1].index == 1);
    CHECK(gpus[1].busy_percent == 0);
    CHECK(gpus[1].ranks.empty());
    CHECK(parse_gpus("", "", rank_of).empty());
}
