#include "base/process/subprocess.h"
#include "tests/support/catch.h"
#include "tests/support/held_program.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

namespace dtrun {
namespace {

const std::vector<std::string> kEnvironment{"PATH=/usr/bin:/bin"};

/// What a program prints that is started as `change` has it.
template <class Change>
std::string printed_by(const std::vector<std::string>& words, Change change) {
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    ProcessPlan plan{.path = words[0], .argv = words, .env = kEnvironment};
    plan.descriptors = {{ProcessPlan::kNull, 0}, {pipe->write.get(), 1}};
    change(plan);
    const auto pid = spawn_process(plan);
    REQUIRE(pid.has_value());
    pipe->write.reset();
    char bytes[4096];
    std::string text;
    for (ssize_t n = 0; (n = ::read(pipe->read.get(), bytes, sizeof bytes)) > 0;)
        text.append(bytes, static_cast<std::size_t>(n));
    int status = 0;
    REQUIRE(::waitpid(*pid, &status, 0) == *pid);
    CHECK(exit_code_of(status) == 0);
    return text;
}

/// From now on the kernel does not know that call, as an old one.
void without_close_range() {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(code), code};
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(2);
}

template <class Change>
std::string printed(const std::string& script, Change change) {
    return printed_by({"sh", "-c", script}, change);
}

}  // namespace

TEST_CASE("a program gets descriptors under the numbers that it is to have", "[subprocess]") {
    // Each takes the place of another, as far as that goes with two.
    auto first = make_pipe(), second = make_pipe();
    REQUIRE((first.has_value() && second.has_value()));
    REQUIRE(write_all(first->write.get(), "first").has_value());
    REQUIRE(write_all(second->write.get(), "second").has_value());
    first->write.reset();
    second->write.reset();
    const int a = first->read.get(), b = second->read.get();
    const std::string script = fmt::format("cat <&{}; echo; cat <&{}", a, b);
    CHECK(printed(script, [a, b](ProcessPlan& plan) {
              plan.close_others = true;
              plan.descriptors.push_back({a, b});
              plan.descriptors.push_back({b, a});
          }) == "second\nfirst");
}

TEST_CASE("a program is kept from our other descriptors if it is to be", "[subprocess]") {
    const Fd open_to_children(::dup(STDERR_FILENO));
    const std::string script =
        fmt::format("test -e /proc/self/fd/{} && echo open; true", open_to_children.get());
    CHECK(printed(script, [](ProcessPlan&) {}) == "open\n");
    CHECK(printed(script, [](ProcessPlan& plan) { plan.close_others = true; }).empty());
}

TEST_CASE("a kernel without close_range keeps a program from our descriptors, too",
          "[subprocess]") {
    const Fd open_to_children(::dup(STDERR_FILENO));
    const std::string script =
        fmt::format("test ! -e /proc/self/fd/{} && echo closed; true", open_to_children.get());
    const pid_t old_machine = ::fork();
    if (old_machine == 0) {
        without_close_range();
        const std::string text =
            printed(script, [](ProcessPlan& plan) { plan.close_others = true; });
        ::_exit(text == "closed\n" ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(old_machine, &status, 0) == old_machine);
    CHECK(exit_code_of(status) == 0);
}

TEST_CASE("signals that we ignore stay so if they are to, and SIGPIPE never", "[subprocess]") {
    const auto hangup = ::signal(SIGHUP, SIG_IGN);
    const auto pipe = ::signal(SIGPIPE, SIG_IGN);
    const std::string kept = printed("kill -HUP $$; echo on",
                                     [](ProcessPlan& plan) { plan.keep_ignored_signals = true; });
    const std::string ended = printed("sh -c 'kill -PIPE $$; echo on'; true",
                                      [](ProcessPlan& plan) { plan.keep_ignored_signals = true; });
    const std::string reset = printed("sh -c 'kill -HUP $$; echo on'; true", [](ProcessPlan&) {});
    ::signal(SIGHUP, hangup);
    ::signal(SIGPIPE, pipe);
    CHECK(kept == "on\n");
    CHECK(ended.empty());
    CHECK(reset.empty());
}

TEST_CASE("signals are blocked in a program only if they are to be", "[subprocess]") {
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGUSR1);
    const auto mask_of = [&](const sigset_t* mask) {
        return printed_by({"grep", "SigBlk", "/proc/self/status"},
                          [mask](ProcessPlan& plan) { plan.blocked_signals = mask; });
    };
    CHECK(mask_of(nullptr) == "SigBlk:\t0000000000000000\n");
    CHECK(mask_of(&blocked) == "SigBlk:\t0000000000000200\n");
}

TEST_CASE("what cannot be executed is told, and leaves no process", "[subprocess]") {
    const std::vector<std::string> argv{"x"};
    const std::string missing = "dtrun-no-such-program", directory = "/etc", shell = "/bin/sh";
    const auto not_found = spawn_process({.path = missing, .argv = argv, .env = {}});
    CHECK(not_found.error().code == Errc::not_found);
    CHECK(not_found.error().message ==
          "dtrun-no-such-program: cannot execute: No such file or directory");
    const auto denied = spawn_process({.path = directory, .argv = argv, .env = {}});
    CHECK(denied.error().code == Errc::denied);
    const auto elsewhere =
        spawn_process({.path = shell, .argv = argv, .env = {}, .directory = "/no/such"});
    CHECK(elsewhere.error().message ==
          "/bin/sh: cannot change directory: No such file or directory");
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

namespace {

/// Whether it was executed, once that is known.
std::expected<void, ExecFailure> executed(SpawnedProcess& process) {
    for (;;) {
        if (const auto result = process.executed.result()) return *result;
        pollfd known{process.executed.get(), POLLIN, 0};
        REQUIRE(::poll(&known, 1, 10'000) == 1);
    }
}

int exit_code(pid_t pid) {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return exit_code_of(status);
}

/// The errno of a program that cannot be executed.
int cause_of(const std::string& path, const std::vector<std::string>& argv) {
    auto started = spawn_without_waiting({.path = path, .argv = argv, .env = kEnvironment});
    REQUIRE(started.has_value());
    const auto result = executed(*started);
    CHECK(exit_code(started->pid) == 126);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().stage == ExecFailure::Stage::execute);
    return result.error().cause;
}

}  // namespace

TEST_CASE("a program that takes long to be executed holds nobody up, nor what it was started with",
          "[subprocess]") {
    const TempDir dir;
    std::optional<HeldProgram> held(std::in_place, dir, "/bin/echo");
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    std::optional<Result<SpawnedProcess>> started;
    {
        const std::string path = held->path, directory = "/";
        const std::vector<std::string> argv{"echo", std::string(100, 'w')}, env{"A=1"};
        ProcessPlan plan{.path = path, .argv = argv, .env = env};
        plan.descriptors = {{pipe->write.get(), 1}};
        plan.close_others = true;
        plan.directory = directory.c_str();
        plan.group = ProcessPlan::Group::own_group;
        started = spawn_without_waiting(plan);
    }
    REQUIRE(started->has_value());
    SpawnedProcess& process = **started;
    pipe->write.reset();
    CHECK(::getpgid(process.pid) == process.pid);
    ::usleep(50'000);
    CHECK_FALSE(process.executed.result().has_value());
    held.reset();
    CHECK(executed(process).has_value());
    char said[200] = {};
    CHECK(::read(pipe->read.get(), said, sizeof said - 1) == 101);
    CHECK(said == std::string(100, 'w') + "\n");
    CHECK(exit_code(process.pid) == 0);
}

TEST_CASE("a program that is killed before it is executed has not failed", "[subprocess]") {
    const TempDir dir;
    const HeldProgram held(dir);
    const std::vector<std::string> argv{"held"};
    auto process = spawn_without_waiting({.path = held.path, .argv = argv, .env = {}});
    REQUIRE(process.has_value());
    REQUIRE(::kill(process->pid, SIGKILL) == 0);
    CHECK(executed(*process).has_value());
    CHECK(exit_code(process->pid) == 128 + SIGKILL);
}

TEST_CASE("a function of ours is called in the child, and says why it executes nothing",
          "[subprocess]") {
    const std::string path = "/no/such";
    const std::vector<std::string> argv{"x"};
    auto gate = make_pipe();
    REQUIRE(gate.has_value());
    const auto wait = [](const void* context, char* const*, char* const*) {
        char byte = 0;
        while (::read(*static_cast<const int*>(context), &byte, 1) < 0) {
        }
        errno = EPERM;
    };
    const int gate_fd = gate->read.get();
    ProcessPlan plan{.path = path, .argv = argv, .env = {}};
    plan.execute = wait;
    plan.execute_context = &gate_fd;
    auto process = spawn_without_waiting(plan);
    REQUIRE(process.has_value());
    CHECK_FALSE(process->executed.result().has_value());
    REQUIRE(write_all(gate->write.get(), "x").has_value());
    const auto result = executed(*process);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().cause == EPERM);
    CHECK(result.error().message() == "cannot execute: Operation not permitted");
    CHECK(exit_code(process->pid) == 126);
}

TEST_CASE("what cannot be executed has the errno of exec", "[subprocess]") {
    const TempDir dir;
    const std::vector<std::string> argv{"x"};
    REQUIRE(::symlink("loop", dir.at("loop").c_str()) == 0);
    const std::string text = dir.write("text", "x", 0755);
    const Fd writer(::open(text.c_str(), O_WRONLY | O_CLOEXEC));
    CHECK(cause_of("/no/such", argv) == ENOENT);
    CHECK(cause_of("", argv) == ENOENT);
    CHECK(cause_of("/etc/passwd/x", argv) == ENOTDIR);
    CHECK(cause_of("/etc", argv) == EACCES);
    CHECK(cause_of(dir.at("loop"), argv) == ELOOP);
    CHECK(cause_of(text, argv) == ETXTBSY);
    CHECK(cause_of("/bin/true", {"true", std::string(1u << 20, 'x')}) == E2BIG);
}

TEST_CASE("a program without a slash is the first on PATH that can be executed", "[subprocess]") {
    const TempDir denied, empty, good;
    denied.write("dtrun-looked-for", "echo wrong\n", 0644);
    good.write("dtrun-looked-for", "echo $0 $1\n", 0755);
    const std::string before = ::getenv("PATH");
    const auto with_path = [](const std::string& path) { ::setenv("PATH", path.c_str(), 1); };
    with_path(fmt::format("{}:{}:{}", denied.path(), empty.path(), good.path()));
    // Without "#!", it is the shell's.
    const std::string said = printed_by({"dtrun-looked-for", "word"}, [](ProcessPlan&) {});
    with_path(fmt::format("{}:{}", denied.path(), empty.path()));
    const int cause = cause_of("dtrun-looked-for", {"x"});
    with_path(before);
    CHECK(said == good.at("dtrun-looked-for") + " word\n");
    CHECK(cause == EACCES);
}

TEST_CASE("a thousand programs are started at once, among as many descriptors", "[subprocess]") {
    constexpr std::size_t kPrograms = 1'000;
    raise_descriptor_limit(4 * kPrograms);
    if (descriptor_limit() < 4 * kPrograms) {
        skip_case("this user may not have 4,000 descriptors");
        return;
    }
    const std::string path = "/bin/sh";
    // The descriptor has a high number here, and the same there.
    Pipe last = make_pipe().value();
    leave_low_numbers(last.write);
    const int number = last.write.get();
    CHECK(number >= kHighDescriptor);
    const std::vector<std::string> argv{"sh", "-c", "cd /proc/self/fd && echo *; exit 7"};
    std::vector<Fd> kept;
    std::vector<SpawnedProcess> processes;
    for (std::size_t i = 0; i < kPrograms; ++i) {
        Pipe pipe = make_pipe().value();
        leave_low_numbers(pipe.read);
        ProcessPlan plan{.path = path, .argv = argv, .env = {}};
        plan.descriptors = {
            {ProcessPlan::kNull, 0}, {number, 1}, {pipe.write.get(), 2}, {number, number}};
        plan.close_others = true;
        auto process = spawn_without_waiting(plan);
        REQUIRE(process.has_value());
        processes.push_back(std::move(*process));
        kept.push_back(std::move(pipe.read));
        if (i % 2 == 0) kept.push_back(std::move(pipe.write));
    }
    last.write.reset();
    std::string text;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::read(last.read.get(), bytes, sizeof bytes)) > 0;)
        text.append(bytes, static_cast<std::size_t>(n));
    const std::string line = fmt::format("0 1 2 {} 3\n", number);  // the last is the directory
    std::string all;
    for (std::size_t i = 0; i < kPrograms; ++i) all += line;
    CHECK(text.substr(0, line.size()) == line);
    CHECK((text == all));
    std::size_t well = 0;
    for (SpawnedProcess& process : processes)
        well += executed(process).has_value() && exit_code(process.pid) == 7;
    CHECK(well == kPrograms);
}

}  // namespace dtrun
