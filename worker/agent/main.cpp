#include "base/build_id.h"
#include "base/fd.h"
#include "base/freed_memory.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/process/ending_signals.h"
#include "base/strings.h"
#include "base/system_floor.h"
#include "worker/agent/demo_rank.h"
#include "worker/agent/guard.h"
#include "worker/agent/keeper.h"
#include "worker/agent/onward_ssh.h"
#include "worker/agent/run_agent.h"
#include "worker/agent/store_program.h"
#include "worker/doctor/host_doctor.h"
#include "worker/ranks/agent_directories.h"
#include "worker/ranks/process_tree.h"
#include "worker/stored/hand_on.h"
#include "worker/stored/stored_file.h"

#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr const char* kUsage =
    "dtrun-agent is started by dtrun on each host of a job and is told on its standard input what\n"
    "to do; --node NAME tells it that Slurm starts it, --checkup that dtrun doctor does,\n"
    "--keep that dtrun hold does, --lent-ssh-agent that the ssh-agent of its log-in is for dtrun,\n"
    "--demo-rank that it is a rank of dtrun demo. Start scripts say by which name it runs (--as),\n"
    "that it is to unpack its package (--prepare), to vouch for its own file (--vouch), and that\n"
    "others may fetch it here (--hand-on).\n"
    "By hand it is good for two things:\n"
    "  dtrun-agent --build-id     print which build this is\n"
    "  dtrun-agent --sweep JOB AGENT\n"
    "                             end what an agent of a job has left on this host: DTRUN_JOB and\n"
    "                             DTRUN_AGENT of its ranks\n";

int sweep(const std::string& job, std::uint64_t agent) {
    int killed = 0;
    // A process may fork between the look and the kill; the second look finds its child.
    for (int round = 0; round < 10; ++round) {
        const auto left = dtrun::ranks::processes_of_agent(job, agent);
        if (left.empty()) break;
        for (const pid_t pid : left) killed += ::kill(pid, SIGKILL) == 0;
    }
    dtrun::ranks::clean_directories(job, agent);
    std::printf("%d\n", killed);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    dtrun::hear_signals();
    dtrun::agent::take_name(argc, argv);
    std::string word;
    std::optional<long long> handed_on;  // a descriptor
    if (argc >= 4 && std::string_view(argv[1]) == "--hand-on") {
        word = argv[2];
        handed_on = dtrun::to_int(argv[3], STDERR_FILENO + 1, std::numeric_limits<int>::max());
        dtrun::agent::take_words(argc, argv, 1, 3);
    }
    const std::string_view option = argc > 1 ? argv[1] : "";
    const bool of_scheduler = option == "--node" && argc == 3;
    const std::string_view called(argc > 0 ? argv[0] : "");
    if (called.substr(called.rfind('/') + 1) == dtrun::agent::kStoreProgram) {
        const std::vector<std::string> words(argv + 1, argv + argc);
        return dtrun::agent::run_store_program(words);
    }
    if (option == "--build-id") {
        std::puts(dtrun::elf_build_id("/proc/self/exe").value_or("none").c_str());
        return 0;
    }
    const auto fails = [&](const std::string& why) {
        const std::string node = of_scheduler ? fmt::format("@{} ", argv[2]) : "";
        const std::string said = fmt::format("{}dtrun-agent-failed {}", node, why);
        std::puts(said.c_str());
        return 1;
    };
    if (const auto lacking = dtrun::lacking_in_system()) return fails(*lacking);
    const bool vouches = option == "--vouch" && argc == 2;
    if (const auto own = dtrun::own_program()) {
        const auto safe =
            vouches ? dtrun::agent::vouch_for(*own) : dtrun::agent::close_to_others(*own);
        if (!safe) return fails(safe.error().message);
    }
    if (vouches) return 0;
    if (option == "--prepare" && argc == 2)  // what goes wrong is told by the agent that lacks it
        return dtrun::agent::find_own_package() ? 0 : 1;
    if (handed_on) dtrun::agent::start_handing_on(word, dtrun::Fd(static_cast<int>(*handed_on)));
    if (option == dtrun::agent::kDemoRank && argc == 2) {
        const int status = dtrun::agent::run_demo_rank();
        ::_exit(status);
    }
    if (option == "--sweep" && argc == 4)
        if (const auto agent = dtrun::to_int(argv[3], 0, std::numeric_limits<long long>::max()))
            return sweep(argv[2], static_cast<std::uint64_t>(*agent));
    if (option == "--checkup" && argc == 2) {
        const int status = dtrun::doctor::run_host_doctor();
        ::_exit(status);
    }
    if (option == dtrun::agent::kKeep && argc == 2) {
        ::signal(SIGPIPE, SIG_IGN);
        return dtrun::agent::run_keeper();
    }
    const bool lends_agent = option == dtrun::agent::kLentAgent && argc == 2;
    if (argc > 1 && !of_scheduler && !lends_agent) {
        std::fputs(kUsage, option == "--help" ? stdout : stderr);
        return option == "--help" ? 0 : 2;
    }
    ::signal(SIGPIPE, SIG_IGN);
    dtrun::keep_freed_memory();
    dtrun::agent::start_guard(of_scheduler);
    dtrun::log::init("dtrun-agent", dtrun::log::Level::normal);
    std::string lent_agent = lends_agent ? dtrun::agent::take_lent_agent() : "";
    const int status = dtrun::agent::run_agent(of_scheduler ? argv[2] : "", std::move(lent_agent));
    std::fflush(nullptr);
    ::_exit(status);
}
