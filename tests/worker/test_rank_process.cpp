#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/ranks/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace dtrun {

using namespace ranks;
namespace {

/// Everything until the end, from a non-blocking pipe.
std::string read_all(int fd) {
    std::string text;
    char bytes[4096];
    for (;;) {
        pollfd wait{fd, POLLIN, 0};
        REQUIRE(::poll(&wait, 1, 10'000) == 1);
        const ssize_t n = ::read(fd, bytes, sizeof bytes);
        if (n <= 0) return text;
        text.append(bytes, static_cast<std::size_t>(n));
    }
}

/// Until it is known.
Result<void> exec_result(RankProcess& rank) {
    auto result = ranks::exec_result(rank.executed);
    while (!result) {
        pollfd wait{rank.executed.get(), POLLIN, 0};
        REQUIRE(::poll(&wait, 1, 10'000) == 1);
        result = ranks::exec_result(rank.executed);
    }
    return *result;
}

int wait_for(pid_t pid) {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return status;
}

}  // namespace

TEST_CASE("a rank gets its arguments, environment and directory as they are", "[rank_process]") {
    const TempDir dir;
    auto rank = spawn_rank({"/bin/sh",
                            {"sh", "-c", "printf '%s|' \"$@\"; printf '%s' \"$V\"; pwd; echo e >&2",
                             "sh", "a b", "", "$HOME", "'\""},
                            {"V=line 1\nline 2;", "PATH=/bin:/usr/bin"},
                            dir.path(),
                            false});
    REQUIRE(rank.has_value());
    REQUIRE(exec_result(*rank).has_value());
    CHECK(read_all(rank->out.get()) == "a b||$HOME|'\"|line 1\nline 2;" + dir.path() + "\n");
    CHECK(read_all(rank->err.get()) == "e\n");
    CHECK(WEXITSTATUS(wait_for(rank->pid)) == 0);
}

TEST_CASE("a rank gets no descriptor but its standard streams, whatever is open here",
          "[rank_process]") {
    const Fd open_to_children(::open("/dev/null", O_RDONLY));
    auto rank = spawn_rank(
        {"/bin/sh", {"sh", "-c", "exec ls /proc/self/fd"}, {"PATH=/bin:/usr/bin"}, "/", false});
    REQUIRE(exec_result(*rank).has_value());
    CHECK(read_all(rank->out.get()) == "0\n1\n2\n3\n");  // the last is the directory
    CHECK(WEXITSTATUS(wait_for(rank->pid)) == 0);
}

TEST_CASE("a rank may open as many files as its user allows, though its agent may open more",
          "[rank_process]") {
    const std::uint64_t before = descriptor_limit();
    REQUIRE(before > 100);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 100;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    raise_descriptor_limit(50);
    CHECK(descriptor_limit() == 100);
    raise_descriptor_limit(before);
    CHECK(descriptor_limit() == before);
    RankCommand command{"/bin/sh", {"sh", "-c", "ulimit -n"}, {}, "/"};
    command.descriptor_limit = 100;
    auto rank = spawn_rank(command);
    REQUIRE(rank.has_value());
    REQUIRE(exec_result(*rank).has_value());
    CHECK(read_all(rank->out.get()) == "100\n");
    wait_for(rank->pid);
}

TEST_CASE("a rank is the leader of its own process group, with default signals", "[rank_process]") {
    for (const bool own_session : {false, true}) {
        RankCommand command{"/bin/sh",  {"sh", "-c", "kill -USR1 $$; sleep 30"}, {}, "/", false, -1,
                            own_session};
        ::signal(SIGUSR1, SIG_IGN);
        auto rank = spawn_rank(command);
        ::signal(SIGUSR1, SIG_DFL);
        REQUIRE(exec_result(*rank).has_value());
        CHECK(::getpgid(rank->pid) == rank->pid);
        CHECK((::getsid(rank->pid) == rank->pid) == own_session);
        CHECK(WTERMSIG(wait_for(rank->pid)) == SIGUSR1);
    }
}

TEST_CASE("what cannot be executed is told by exec_result, not by an exit code", "[rank_process]") {
    auto missing = spawn_rank({"/no/such/program", {"x"}, {}, "/", false});
    CHECK(exec_result(*missing).error().code == Errc::not_found);
    wait_for(missing->pid);
    auto no_directory = spawn_rank({"/bin/true", {"true"}, {}, "/no/such/dir", false});
    CHECK(exec_result(*no_directory).error().message ==
          "cannot change directory: No such file or directory");
    wait_for(no_directory->pid);
    auto too_long = spawn_rank({"/bin/true", {"true", std::string(200'000, 'x')}, {}, "/", false});
    CHECK_THAT(
        exec_result(*too_long).error().message,
        Catch::Contains("Argument list too long: one argument or variable may have 128 KiB"));
    wait_for(too_long->pid);
}

TEST_CASE("a program for another processor is not read by a shell", "[rank_process]") {
    const TempDir dir;
    const std::string foreign = dir.write("foreign",
                                          "\x7f"
                                          "ELF" +
                                              std::string(200, '\0'),
                                          0755);
    auto rank = spawn_rank({foreign, {"foreign"}, {"PATH=/bin"}, "/", false});
    const auto result = exec_result(*rank);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == Errc::denied);
    CHECK_THAT(result.error().message, Catch::StartsWith("cannot execute: a program for other"));
    wait_for(rank->pid);
}

TEST_CASE("a script without an interpreter line is the shell's", "[rank_process]") {
    const TempDir dir;
    const std::string script = dir.write("script", "echo from script $1\n", 0755);
    auto rank = spawn_rank({script, {"script", "arg"}, {"PATH=/bin"}, "/", false});
    REQUIRE(exec_result(*rank).has_value());
    CHECK(read_all(rank->out.get()) == "from script arg\n");
    wait_for(rank->pid);
}

TEST_CASE("a rank that wants input has a pipe, any other reads end of file", "[rank_process]") {
    auto reader = spawn_rank({"/bin/cat", {"cat"}, {}, "/", true});
    REQUIRE(exec_result(*reader).has_value());
    REQUIRE(write_all(reader->in.get(), "typed").has_value());
    reader->in.reset();
    CHECK(read_all(reader->out.get()) == "typed");
    wait_for(reader->pid);
    auto other = spawn_rank({"/bin/cat", {"cat"}, {}, "/", false});
    CHECK(read_all(other->out.get()).empty());
    wait_for(other->pid);
}

TEST_CASE("programs are found as execvp finds them, with advice when they are not",
          "[rank_process]") {
    const TempDir dir;
    const std::string tool = dir.write("tool", "#!/bin/sh\n", 0755);
    dir.write("train.py", "print()\n", 0644);
    CHECK(find_program("tool", "/", "/nonexistent:" + dir.path()).value() == tool);
    CHECK(find_program("./tool", dir.path(), "").value() == dir.path() + "/./tool");
    CHECK(find_program(tool, "/", "").value() == tool);

    CHECK(find_program("nosuch", "/", "/bin").error().message ==
          "nosuch: not found on PATH\nPATH=/bin");
    const std::string bare = dir.write("bare.py", "import os\n", 0755);
    CHECK(find_program("./bare.py", dir.path(), "").error().message ==
          "./bare.py: has no first line such as #!/usr/bin/env python3; write python3 before it");
    dir.write("linked.py",
              std::string("\x7f"
                          "ELF\0",
                          5),
              0755);
    CHECK(find_program("./linked.py", dir.path(), "").has_value());
    dir.write("python3", "#!/bin/sh\n", 0755);
    CHECK(find_program("python", "/", dir.path()).error().message ==
          "python: not found on PATH, but python3 is there");
    const std::string orphan = dir.write("orphan", "#! /no/such/shell -x\n", 0755);
    for (const auto& found :
         {find_program(orphan, "/", ""), find_program("orphan", "/", dir.path())}) {
        CHECK(found.error().code == Errc::not_found);
        CHECK(found.error().message == orphan + ": its interpreter /no/such/shell is not there");
    }
    for (const char* const line : {"#!/bin/sh\r\n", "#!/usr/bin/env python3\r\n"}) {
        const std::string of_windows = dir.write("of_windows", line, 0755);
        CHECK_THAT(find_program(of_windows, "/", "").error().message,
                   Catch::Contains("carriage return") && Catch::Contains("sed -i 's/\\r$//' "));
    }
    CHECK(find_program("tool", dir.path(), "/bin").error().message.ends_with("write ./tool"));
    dir.write("run.sh", "true\n", 0644);
    CHECK(find_program("run.sh", dir.path(), "/bin").error().message.ends_with("e.g. sh run.sh"));
    const auto script = find_program("train.py", dir.path(), "/bin");
    CHECK(script.error().message.ends_with("write its interpreter first, e.g. python3 train.py"));
    const auto not_executable = find_program("./train.py", dir.path(), "");
    CHECK(not_executable.error().code == Errc::denied);
    CHECK(find_program("./none", dir.path(), "").error().code == Errc::not_found);
    CHECK(find_program(dir.path(), "/", "").error().message.ends_with("is a directory"));
}

TEST_CASE("a rank with a terminal has it as its own, of the size that was asked for",
          "[rank_process][pty]") {
    RankCommand command{
        "/bin/sh",
        {"sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size && echo on >/dev/tty"},
        {"PATH=/bin:/usr/bin"},
        "/",
        false};
    command.own_session = true;
    command.terminal = TerminalSize{31, 77};
    auto rank = spawn_rank(command);
    REQUIRE(rank.has_value());
    REQUIRE(exec_result(*rank).has_value());
    CHECK_FALSE(static_cast<bool>(rank->out));
    CHECK(read_all(rank->terminal.get()) == "31 77\r\non\r\n");
    CHECK(WEXITSTATUS(wait_for(rank->pid)) == 0);
}

}  // namespace dtrun
