#include "tests/cluster/support/enter.h"

#include "base/fd.h"
#include "base/strings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace dtrun::cluster {
namespace {

constexpr int kNamespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET;

std::vector<char*> pointers(const std::vector<std::string>& words) {
    std::vector<char*> list;
    for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
    list.push_back(nullptr);
    return list;
}

/// Everything that the two child processes need, made before the fork: they must not allocate.
struct Prepared {
    const Command& command;
    Streams streams;
    std::vector<char*> argv;
    std::vector<char*> environment;
    Fd init;                  // pidfd
    std::vector<Fd> cgroups;  // cgroup.procs
    Pipe report;
};

[[noreturn]] void give_up(const char* what, int status) {
    dprintf(STDERR_FILENO, "cluster: %s: %s\n", what, std::strerror(errno));
    _exit(status);
}

void take_streams(const Streams& streams) {
    const int from[] = {streams.in, streams.out, streams.err};
    int above[3] = {};
    for (int fd = 0; fd < 3; ++fd) above[fd] = fcntl(from[fd], F_DUPFD_CLOEXEC, 3);
    for (int fd = 0; fd < 3; ++fd) dup2(above[fd], fd);
}

void default_signals() {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int number = 1; number < SIGRTMIN; ++number) ::signal(number, SIG_DFL);
}

[[noreturn]] void become_command(Prepared& prepared) {
    const Command& command = prepared.command;
    setsid();
    default_signals();
    take_streams(prepared.streams);
    if (command.terminal) ioctl(STDIN_FILENO, TIOCSCTTY, 0);
    syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
    const Account& account = command.account;
    if (setgroups(1, &account.gid) != 0 || setgid(account.gid) != 0 || setuid(account.uid) != 0) {
        give_up("cannot become the user", 126);
    }
    if (chdir(command.cwd.c_str()) != 0) give_up(command.cwd.c_str(), 126);
    environ = prepared.environment.data();
    execvp(prepared.argv[0], prepared.argv.data());
    give_up(prepared.argv[0], 127);
}

/// Runs in an intermediate child. setns() puts only later children into a pid namespace, so this
/// one enters and forks; CLONE_PARENT makes its child ours.
[[noreturn]] void enter_and_fork(Prepared& prepared) {
    int answer = -1;
    bool joined = true;
    for (const Fd& cgroup : prepared.cgroups) joined &= write(cgroup.get(), "0", 1) == 1;
    if (joined && setns(prepared.init.get(), kNamespaces) == 0) {
        const long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, 0);
        if (pid == 0) become_command(prepared);
        answer = static_cast<int>(pid);
    }
    if (answer < 0) answer = -errno;
    _exit(write(prepared.report.write.get(), &answer, sizeof answer) == sizeof answer ? 0 : 1);
}

}  // namespace

Account find_account(const Place& place, const std::string& user) {
    const std::string path = fmt::format("/proc/{}/root/etc/passwd", place.init);
    const Result<std::string> text = read_file(path);
    if (!text) throw std::runtime_error(text.error().message);
    for (const std::string_view line : split(*text, '\n')) {
        const std::vector<std::string_view> fields = split(line, ':');
        if (fields.size() < 7 || fields[0] != user) continue;
        const auto uid = to_int(fields[2], 0, 1 << 30);
        const auto gid = to_int(fields[3], 0, 1 << 30);
        return {static_cast<uid_t>(uid.value()), static_cast<gid_t>(gid.value()),
                std::string(fields[5])};
    }
    throw std::runtime_error(fmt::format("{}: no user {}", path, user));
}

pid_t start_inside(const Place& place, const Command& command, const Streams& streams) {
    Prepared prepared{command,
                      streams,
                      pointers(command.argv),
                      pointers(command.environment),
                      Fd(static_cast<int>(syscall(SYS_pidfd_open, place.init, 0))),
                      {},
                      make_pipe().value()};
    for (const std::string& cgroup : place.cgroups)
        prepared.cgroups.emplace_back(
            open((cgroup + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
    if (child == 0) enter_and_fork(prepared);
    prepared.report.write.reset();
    waitpid(child, nullptr, 0);
    int answer = -ESRCH;
    const ssize_t got = read(prepared.report.read.get(), &answer, sizeof answer);
    if (got != sizeof answer || answer < 0) {
        throw std::runtime_error(
            fmt::format("cannot enter the host of pid {}: {}", place.init, std::strerror(-answer)));
    }
    char none;
    while (read(prepared.report.read.get(), &none, 1) > 0) {
    }  // end of file: it was executed, or is gone
    return answer;
}

}  // namespace dtrun::cluster
