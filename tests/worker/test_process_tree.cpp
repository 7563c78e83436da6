#include "worker/ranks/left_behind.h"
#include "worker/ranks/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace dtrun {

using namespace ranks;
namespace {

/// Runs `body` in a child that is a subreaper, as an agent is; its exit status.
int in_subreaper(auto body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        ::_exit(body());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/// Starts a shell command in the background and waits until it has written a byte.
void start(const char* script) {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(99);
    if (::fork() == 0) {
        ::dup2(ends[1], 9);
        ::execl("/bin/sh", "sh", "-c", script, nullptr);
        ::_exit(98);
    }
    ::close(ends[1]);
    char byte;
    if (::read(ends[0], &byte, 1) != 1) ::_exit(97);
}

// A child, its child in a session of its own, and a grandchild whose parents are gone.
constexpr const char* kTree =
    "sleep 60 & setsid sleep 60 & (setsid sh -c 'sleep 60 & echo x >&9; exit' &); wait";

}  // namespace

TEST_CASE("a process that daemonized is found below the subreaper, and killed", "[process_tree]") {
    const int killed = in_subreaper([] {
        start(kTree);
        const auto found = descendants(::getpid());
        if (found.size() < 4) return 100 + static_cast<int>(found.size());
        const int count = end_descendants(std::chrono::seconds(5));
        return descendants(::getpid()).empty() ? count : 90;
    });
    CHECK(killed >= 4);
    CHECK(killed < 90);
}

TEST_CASE("processes that keep forking are all killed", "[process_tree]") {
    const int left = in_subreaper([] {
        start("echo x >&9; while :; do (sleep 0.01; sleep 5) & sleep 0.002; done");
        ::usleep(100'000);
        end_descendants(std::chrono::seconds(5));
        return static_cast<int>(descendants(::getpid()).size());
    });
    CHECK(left == 0);
}

TEST_CASE(
    "what an agent left is found by its number and its job's id, wherever it stands in the tree",
    "[process_tree]") {
    ::setenv("DTRUN_JOB", "feedbeef", 1);
    ::setenv("DTRUN_AGENT", "12", 1);
    const pid_t stray = ::fork();
    if (stray == 0) {
        ::execl("/bin/sleep", "sleep", "60", nullptr);
        ::_exit(99);
    }
    ::unsetenv("DTRUN_JOB");
    ::unsetenv("DTRUN_AGENT");
    std::vector<pid_t> found;
    for (int i = 0; i < 200 && found.empty(); ++i) {
        ::usleep(5'000);  // until it has executed
        found = processes_of_agent("feedbeef", 12);
    }
    CHECK(found == std::vector<pid_t>{stray});
    CHECK(processes_of_agent("feedbee", 12).empty());
    for (const std::uint64_t other : {1, 2, 11, 121})  // of another host, or of this one before
        CHECK(processes_of_agent("feedbeef", other).empty());
    ::kill(stray, SIGKILL);
    ::waitpid(stray, nullptr, 0);
}

TEST_CASE("directories that an agent left are removed, and no others", "[process_tree]") {
    const std::string job = "feedbeef" + std::to_string(::getpid());
    CHECK(directory_prefix(job, 1).find(job) == std::string::npos);  // everybody reads it
    const auto make = [](const std::string& name) {
        const std::string path = "/tmp/" + name;
        std::filesystem::create_directories(path + "/deep/er");
        return path;
    };
    const std::string left = make(directory_prefix(job, 1) + "a");
    const std::string other = make(directory_prefix(job + "0", 1) + "a");
    const std::string newer = make(directory_prefix(job, 2) + "a");
    CHECK(clean_directories(job, 1) == 1);
    CHECK_FALSE(std::filesystem::exists(left));
    CHECK(std::filesystem::exists(other));
    CHECK(std::filesystem::exists(newer));
    CHECK(clean_directories(job + "0", 1) == 1);
    CHECK(clean_directories(job, 2) == 1);
}

}  // namespace dtrun
