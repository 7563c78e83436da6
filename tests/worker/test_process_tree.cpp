#include "base/fd.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"
#include "worker/ranks/agent_directories.h"
#include "worker/ranks/process_tree.h"
#include "worker/ranks/store_elsewhere.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

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

TEST_CASE("what a thread has started is found, and what is at the same place but for one",
          "[process_tree]") {
    const int wrong = in_subreaper([] {
        Pipe ready = make_pipe().value();
        std::thread starter([&ready] {
            start("sleep 60 & echo x >&9; wait");
            ready.write.reset();
            ::pause();
        });
        starter.detach();
        start("echo x >&9; exec sleep 60");
        char byte = 0;
        if (::read(ready.read.get(), &byte, 1) != 0) return 1;
        const std::vector<pid_t> all = descendants(::getpid());
        if (all.size() != 3) return 2;
        for (const pid_t pid : all) {
            const std::vector<pid_t> others = descendants(::getpid(), std::vector{pid});
            const std::size_t below = descendants(pid).size();
            if (others.size() != 3 - 1 - below) return 3;
            if (descendants_of_each(std::vector{pid, ::getpid()})[1].size() != 3) return 4;
        }
        return end_descendants(std::chrono::seconds(5)) == 3 ? 0 : 5;
    });
    CHECK(wrong == 0);
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

TEST_CASE("a launcher within a rank that sends torch to an address of its own is found",
          "[process_tree]") {
    const auto environment = [](std::initializer_list<std::string> variables) {
        std::string text(1, '\0');
        for (const std::string& variable : variables) text += variable + '\0';
        return text;
    };
    const std::string served = "TORCHELASTIC_USE_AGENT_STORE=True", run = "TORCHELASTIC_RUN_ID=abc";
    const std::string rank = environment({served, run, "MASTER_ADDR=10.0.0.1", "MASTER_PORT=2000"});
    const auto there = [&](std::initializer_list<std::string> variables) {
        return store_elsewhere(rank, environment(variables)).value_or("");
    };
    CHECK(there({served, run, "MASTER_ADDR=10.0.0.1", "MASTER_PORT=24001"}) == "10.0.0.1:24001");
    CHECK(there({"MASTER_ADDR=s1", "MASTER_PORT=2000", run, served}) == "s1:2000");
    CHECK(there({served, run, "MASTER_ADDR=10.0.0.1", "MASTER_PORT=2000"}).empty());
    // torchrun within a rank serves the store, and accelerate with --store rank0 has its rank 0 do it.
    CHECK(there({served, "TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=s1", "MASTER_PORT=1"}).empty());
    CHECK(there({"TORCHELASTIC_USE_AGENT_STORE=False", run, "MASTER_PORT=24001"}).empty());
}

TEST_CASE("a torchrun within a rank has a world of its own, or one of several hosts",
          "[process_tree]") {
    const auto environment = [](std::initializer_list<std::string> variables) {
        std::string text(1, '\0');
        for (const std::string& variable : variables) text += variable + '\0';
        return text;
    };
    const std::string rank = environment({"TORCHELASTIC_RUN_ID=abc", "WORLD_SIZE=2"});
    const std::string own = "TORCHELASTIC_RUN_ID=none";
    CHECK(own_world(rank, environment({own, "GROUP_WORLD_SIZE=1", "WORLD_SIZE=4"})) == 4u);
    CHECK_FALSE(own_world(rank, environment({own, "GROUP_WORLD_SIZE=2", "WORLD_SIZE=8"})));
    CHECK_FALSE(own_world(rank, rank));
    CHECK_FALSE(own_world(rank, environment({"WORLD_SIZE=4", "GROUP_WORLD_SIZE=1"})));
    const std::string alone = environment({"TORCHELASTIC_RUN_ID=abc", "WORLD_SIZE=1"});
    CHECK_FALSE(own_world(alone, environment({own, "GROUP_WORLD_SIZE=1", "WORLD_SIZE=4"})));
}

TEST_CASE("a program that tries a tcp:// address of its own is told by its sleep, and its torch",
          "[process_tree]") {
    const std::string file =
        "/tmp/dtrun-test-" + std::to_string(::getpid()) + "/libtorch_python.so";
    std::filesystem::create_directory(std::filesystem::path(file).parent_path());
    std::ofstream(file) << "torch";
    const auto started = [&](timespec pause, bool as_python) {
        const pid_t child = ::fork();
        if (child != 0) return child;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int fd = ::open(file.c_str(), O_RDONLY);
        ::mmap(nullptr, 5, PROT_READ, MAP_PRIVATE, fd, 0);
        timespec until{};
        ::clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += pause.tv_sec;
        for (;;)
            if (as_python)
                ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
            else
                ::nanosleep(&pause, nullptr);
    };
    const timespec span = GENERATE(timespec{.tv_sec = 1, .tv_nsec = 0},  // torch 1.13
                                   timespec{.tv_sec = 0, .tv_nsec = 295'000'000},
                                   timespec{.tv_sec = 8, .tv_nsec = 170'000'000});
    const pid_t process = started(span, false);
    const std::string served = std::string(1, '\0') + "TORCHELASTIC_USE_AGENT_STORE=True" + '\0';
    const auto seems = [&](const std::string& more) {
        return seems_to_look_elsewhere(process, served + more + '\0');
    };
    for (int i = 0; i < 1'000 && !seems("MASTER_PORT=1"); ++i) ::usleep(5'000);  // until it sleeps
    CHECK(seems("MASTER_PORT=1"));
    for (const pid_t other : {started({.tv_sec = 60, .tv_nsec = 0}, true),
                              started({.tv_sec = 60, .tv_nsec = 0}, false)}) {
        const std::string calls = "/proc/" + std::to_string(other) + "/syscall";
        const auto sleeps = [&] {
            return read_file(calls).value_or("").starts_with(std::to_string(SYS_clock_nanosleep));
        };
        for (int i = 0; i < 1'000 && !sleeps(); ++i) ::usleep(5'000);
        CHECK(sleeps());
        CHECK_FALSE(seems_to_look_elsewhere(other, served + "MASTER_PORT=1" + '\0'));
        ::kill(other, SIGKILL);
        ::waitpid(other, nullptr, 0);
    }
    CHECK_FALSE(seems_to_look_elsewhere(process, std::string(1, '\0') + "MASTER_PORT=1" + '\0'));
    CHECK_FALSE(seems_to_look_elsewhere(::getpid(), served + "MASTER_PORT=1" + '\0'));

    const int door = ::socket(AF_INET, SOCK_STREAM, 0), client = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(door, any, size) == 0);
    REQUIRE(::listen(door, 1) == 0);
    REQUIRE(::getsockname(door, any, &size) == 0);
    const std::string port = "MASTER_PORT=" + std::to_string(ntohs(address.sin_port));
    CHECK(seems(port));
    REQUIRE(::connect(client, any, size) == 0);
    CHECK_FALSE(seems(port));
    ::close(door);
    ::close(client);
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    std::filesystem::remove_all(std::filesystem::path(file).parent_path());
}

TEST_CASE("ranks whose programs look for torch's store elsewhere are told of in the report",
          "[process_tree]") {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t rank = ::fork();
    if (rank == 0) {
        ::dup2(ready[1], 9);
        ::setpgid(0, 0);
        const char* const argv[] = {
            "sh", "-c", "MASTER_PORT=24001 sh -c 'echo x >&9; sleep 60; :'; :", nullptr};
        const char* const variables[] = {"PATH=/usr/bin:/bin", "TORCHELASTIC_USE_AGENT_STORE=True",
                                         "MASTER_ADDR=s1", "MASTER_PORT=2000", nullptr};
        ::execve("/bin/sh", const_cast<char* const*>(argv), const_cast<char* const*>(variables));
        ::_exit(99);
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    const RunningRank running{.rank = Rank{3}, .pid = rank, .place = {}};
    const auto waits = waits_elsewhere({&running, 1});
    REQUIRE(waits.size() == 1);
    CHECK(waits.front().rank == Rank{3});
    CHECK_THAT(waits.front().what, Catch::Contains("s1:24001") && Catch::Contains("--store rank0"));
    ::kill(-rank, SIGKILL);
    ::waitpid(rank, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_CASE("directories that an agent left are removed, and no others", "[process_tree]") {
    const std::string job = "feedbeef" + std::to_string(::getpid());
    CHECK(directory_prefix(job, 1).find(job) == std::string::npos);  // everybody reads it
    std::vector<Fd> held;  // for agents of other tests sweep what nobody holds
    const auto make = [&held](const std::string& name) {
        const std::string path = "/tmp/" + name;
        std::filesystem::create_directories(path + "/deep/er");
        held.emplace_back(::open(path.c_str(), O_RDONLY | O_DIRECTORY));
        REQUIRE(::flock(held.back().get(), LOCK_SH) == 0);
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

TEST_CASE("directories that no agent holds any more are swept, and no others", "[process_tree]") {
    const TempDir directory;
    const auto path = [&directory](const std::string& name) {
        return directory.path() + "/" + name;
    };
    const auto make = [&path](const std::string& name) {
        std::filesystem::create_directories(path(name) + "/deep/er");
        return path(name);
    };
    const std::string left = make("dtrun-job-left");
    const std::string held = make("dtrun-job-held");
    const std::string others = make("dtrun-report");
    const std::string file = path("dtrun-job-file");
    CHECK(write_all(Fd(::open(file.c_str(), O_WRONLY | O_CREAT, 0600)).get(), "x"));
    std::filesystem::create_symlink(others, path("dtrun-job-link"));
    std::filesystem::create_symlink(others, left + "/link");
    Fd lock(::open(held.c_str(), O_RDONLY | O_DIRECTORY));
    REQUIRE(::flock(lock.get(), LOCK_SH) == 0);
    CHECK(sweep_directories(directory.path()) == 1);
    CHECK_FALSE(std::filesystem::exists(left));
    for (const std::string& kept : {held, others + "/deep/er", file, path("dtrun-job-link")})
        CHECK(std::filesystem::exists(kept));
    lock.reset();
    CHECK(sweep_directories(directory.path()) == 1);
    CHECK_FALSE(std::filesystem::exists(held));
    CHECK(sweep_directories(directory.path() + "/none") == 0);
}

TEST_CASE("what jobs need for long is not where logind deletes it when its user logs out",
          "[process_tree]") {
    const std::string made = make_directory(directory_prefix("feedbeef", 1)).value();
    CHECK(made.starts_with("/tmp/"));
    const std::string shared =
        make_directory(directory_prefix("feedbeef", 1), kMemoryParents).value();
    CHECK(shared.starts_with("/dev/shm/"));
    CHECK(clean_directories("feedbeef", 1) == 2);
    remove_directory(made);
    remove_directory(shared);
}

TEST_CASE("a directory for files is not made where none can be written", "[process_tree]") {
    const TempDir full, roomy;
    const int status = in_subreaper([&] {
        if (::unshare(CLONE_NEWNS) != 0) return 77;
        if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("tmpfs", full.path().c_str(), "tmpfs", 0, "size=4k") != 0 ||
            !create_file(full.path() + "/page", std::string(4096, '.')))
            return 2;
        const std::array parents{full.path().c_str(), roomy.path().c_str()};
        const auto files = make_directory("dtrun-test-", parents);
        const auto names = make_directory("dtrun-test-", parents, DirectoryUse::names);
        const auto none = make_directory("dtrun-test-", {full.path().c_str(), "/nosuch"});
        const auto left = std::filesystem::directory_iterator(full.path());
        return files && files->starts_with(roomy.path()) && names &&
                       names->starts_with(full.path()) && !none &&
                       none.error().message.contains("No space left on device and /nosuch/") &&
                       std::distance(begin(left), end(left)) == 2
                   ? 0
                   : 1;
    });
    if (status == 77) return skip_case("only root can mount file systems");
    CHECK(status == 0);
}

TEST_CASE("an agent holds its directories until it removes them", "[process_tree]") {
    const std::string made = make_directory(directory_prefix("feedbeef", 1)).value();
    const std::string parent = made.substr(0, made.rfind('/'));
    sweep_directories(parent);
    CHECK(std::filesystem::exists(made));
    remove_directory(made);
    CHECK_FALSE(std::filesystem::exists(made));
}

}  // namespace dtrun
