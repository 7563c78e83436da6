#include "base/subprocess.h"
#include "tests/support/catch.h"

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
#include <iterator>

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

TEST_CASE("fork_process() does not wait until the program is executed", "[subprocess]") {
    const std::string path = "/no/such";
    const std::vector<std::string> argv{"x"};
    // The child is kept from executing anything until it may read.
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
    plan.group = ProcessPlan::Group::own_group;
    const auto forked = fork_process(plan);
    REQUIRE(forked.has_value());
    CHECK(::getpgid(forked->pid) == forked->pid);
    CHECK_FALSE(exec_result(forked->exec_status.get()).has_value());
    REQUIRE(write_all(gate->write.get(), "x").has_value());
    pollfd known{forked->exec_status.get(), POLLIN, 0};
    REQUIRE(::poll(&known, 1, 10'000) == 1);
    const auto result = exec_result(forked->exec_status.get());
    REQUIRE(result.has_value());
    REQUIRE_FALSE(result->has_value());
    CHECK(result->error().cause == EPERM);
    CHECK(result->error().message() == "cannot execute: Operation not permitted");
    CHECK(::waitpid(forked->pid, nullptr, 0) == forked->pid);
}

}  // namespace dtrun
