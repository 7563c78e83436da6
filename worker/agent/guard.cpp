#include "worker/agent/guard.h"

#include "worker/ranks/agent_directories.h"
#include "worker/ranks/process_tree.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace dtrun::agent {
namespace {

constexpr std::chrono::seconds kKillLimit{4};
/// A job that ends sooner leaves it to others: to look for what they have left would be a tenth of what it costs itself.
constexpr unsigned kSweepAfter = 1;  // seconds

volatile sig_atomic_t agent_pid = 0;
volatile sig_atomic_t sweep_is_due = 0;

void pass_on(int signal) {
    for (std::size_t i = 0; i < kGuardSignals.size(); ++i)
        if (kGuardSignals[i] == signal) ::kill(static_cast<pid_t>(agent_pid), passed_on(i));
}

/// Only the agent may hold the lifeline: nobody would see it end while the guard had it open, too.
void close_standard_streams() {
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2; ++fd) ::dup2(null, fd);
    if (null > 2) ::close(null);
}

/// Has waitpid() return in a second, unless it has that moment between two calls.
void plan_sweep() {
    struct sigaction wake {};
    wake.sa_handler = [](int) { sweep_is_due = 1; };
    ::sigaction(SIGALRM, &wake, nullptr);
    ::alarm(kSweepAfter);
}

/// Removes what agents have left whose guards were killed with them. In a process of its own, for which
/// nobody waits: a file system may hang.
void start_sweeper() {
    if (::fork() != 0) return;
    for (const int signal : kGuardSignals) ::signal(signal, SIG_DFL);
    ::prctl(PR_SET_NAME, "dtrun-sweeper");
    for (const char* const parent : ranks::kDirectoryParents) ranks::sweep_directories(parent);
    ::_exit(0);
}

[[noreturn]] void be_guard(pid_t agent, bool of_scheduler) {
    agent_pid = agent;
    ::prctl(PR_SET_NAME, "dtrun-guard");
    close_standard_streams();
    for (const int signal : kGuardSignals) ::signal(signal, pass_on);
    plan_sweep();
    for (;;) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, 0);
        if (pid < 0 && errno == EINTR) {
            if (sweep_is_due != 0) start_sweeper();
            sweep_is_due = 0;
            continue;
        }
        if (pid == agent || pid < 0) {
            ranks::end_descendants(kKillLimit);
            ranks::agent_directories().clean();
            if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
            if (of_scheduler && WTERMSIG(status) == SIGKILL) ::kill(::getpid(), SIGKILL);
            ::_exit(128 + WTERMSIG(status));
        }
    }
}

}  // namespace

void start_guard(bool of_scheduler) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ranks::agent_directories();  // before the fork: it is to be shared
    const pid_t guard = ::getpid();
    const pid_t agent = ::fork();
    if (agent < 0) {
        std::perror("dtrun-agent: fork");
        std::exit(1);
    }
    if (agent > 0) be_guard(agent, of_scheduler);
    ::setsid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != guard) ::_exit(1);
}

}  // namespace dtrun::agent
