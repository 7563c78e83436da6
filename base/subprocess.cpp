#include "base/subprocess.h"

#include "base/signal_names.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

namespace dtrun {
namespace {

/// Data that the child needs, prepared before the fork: after it only async-signal-safe calls are
/// allowed. (glibc's execvpe() is one: it neither allocates nor locks.)
struct Child {
    const ProcessPlan& plan;
    pid_t parent;
    int status;                ///< pipe to which a failure is written; closed by exec
    int first_free;            ///< the program gets no descriptor number from here on
    std::vector<int> sources;  ///< our numbers of plan.descriptors
    std::vector<char*> argv, env;
    rlimit descriptors;
    std::vector<unsigned long> cpus;  ///< a mask; empty: none is set
    int descriptors_max = 0;          ///< no descriptor of ours has this number, or a higher one
};

[[noreturn]] void child_fails(const Child& child, ExecFailure::Stage stage) {
    const ExecFailure failure{stage, errno};
    if (::write(child.status, &failure, sizeof failure) < 0) ::_exit(125);
    ::_exit(126);
}

void set_signals(const ProcessPlan& plan) {
    for (int signal = 1; signal < NSIG; ++signal) {
        const auto before = ::signal(signal, SIG_DFL);
        if (before == SIG_IGN && plan.keep_ignored_signals && signal != SIGPIPE)
            ::signal(signal, SIG_IGN);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, plan.blocked_signals != nullptr ? plan.blocked_signals : &none,
                  nullptr);
}

bool is_given(const ProcessPlan& plan, int number) {
    return std::ranges::any_of(plan.descriptors, [number](const ProcessPlan::Given& given) {
        return given.number == number;
    });
}

/// Moves `fd` to a free number if the program is to get another descriptor at its number.
void clear_number(const Child& child, int& fd) {
    if (is_given(child.plan, fd)) fd = ::fcntl(fd, F_DUPFD_CLOEXEC, child.first_free);
}

/// Has exec close every descriptor above standard error. glibc's close_range() is newer than the systems that we
/// run on; the call itself is missing in kernels before 5.11, and where a container's seccomp does not know it.
void close_others_at_exec(const Child& child) {
    if (::syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
    for (int fd = STDERR_FILENO + 1; fd < child.descriptors_max; ++fd)
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void set_descriptors(Child& child) {
    const ProcessPlan& plan = child.plan;
    clear_number(child, child.status);
    for (std::size_t i = 0; i < child.sources.size(); ++i) {
        int& source = child.sources[i];
        if (source == ProcessPlan::kNull) source = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        if (source >= 0 && source != plan.descriptors[i].number) clear_number(child, source);
        if (source < 0) child_fails(child, ExecFailure::Stage::redirect);
    }
    // This covers every other descriptor, also an accepted one that is not yet close-on-exec.
    if (plan.close_others) close_others_at_exec(child);
    for (std::size_t i = 0; i < child.sources.size(); ++i) {
        const int source = child.sources[i], number = plan.descriptors[i].number;
        const int done = source == number ? ::fcntl(number, F_SETFD, 0) : ::dup2(source, number);
        if (done < 0) child_fails(child, ExecFailure::Stage::redirect);
    }
}

[[noreturn]] void run_child(Child& child) {
    const ProcessPlan& plan = child.plan;
    if (plan.group == ProcessPlan::Group::own_session) ::setsid();
    if (plan.group == ProcessPlan::Group::own_group) ::setpgid(0, 0);
    if (plan.death_signal != 0) {
        ::prctl(PR_SET_PDEATHSIG, plan.death_signal);
        if (::getppid() != child.parent) ::_exit(125);  // the parent died before the line above
    }
    // Kept over exec. Without Yama it is unknown, and not needed.
    if (plan.may_be_traced) ::prctl(PR_SET_PTRACER, child.parent);
    set_signals(plan);
    set_descriptors(child);
    if (plan.controlling_terminal && ::ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0)
        child_fails(child, ExecFailure::Stage::redirect);
    if (plan.descriptor_limit != 0) ::setrlimit(RLIMIT_NOFILE, &child.descriptors);
    if (!child.cpus.empty() &&
        ::sched_setaffinity(0, child.cpus.size() * sizeof child.cpus[0],
                            reinterpret_cast<const cpu_set_t*>(child.cpus.data())) != 0)
        child_fails(child, ExecFailure::Stage::bind);
    if (plan.directory != nullptr && ::chdir(plan.directory) != 0)
        child_fails(child, ExecFailure::Stage::change_directory);
    if (plan.execute != nullptr)
        plan.execute(plan.execute_context, child.argv.data(), child.env.data());
    else
        ::execvpe(plan.path.c_str(), child.argv.data(), child.env.data());
    child_fails(child, ExecFailure::Stage::execute);
}

Child prepare(const ProcessPlan& plan, int status) {
    Child child{plan, ::getpid(),         status, 3, {}, pointers(plan.argv), pointers(plan.env),
                {},   cpu_mask(plan.cpus)};
    for (const ProcessPlan::Given& given : plan.descriptors) {
        child.sources.push_back(given.ours);
        child.first_free = std::max(child.first_free, given.number + 1);
    }
    ::getrlimit(RLIMIT_NOFILE, &child.descriptors);
    constexpr rlim_t kMost = 1u << 20;
    child.descriptors_max = static_cast<int>(std::min(child.descriptors.rlim_cur, kMost));
    child.descriptors.rlim_cur = plan.descriptor_limit;
    return child;
}

/// Blocks all signals while alive: our handlers must not run in the child before it has reset them.
class AllSignalsBlocked {
public:
    AllSignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    AllSignalsBlocked(const AllSignalsBlocked&) = delete;
    AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

private:
    sigset_t before_;
};

}  // namespace

Errc ExecFailure::code() const {
    return cause == ENOENT ? Errc::not_found : cause == EACCES ? Errc::denied : Errc::internal;
}

std::string ExecFailure::message() const {
    constexpr std::array<const char*, 4> stages{"redirect", "change directory", "execute",
                                                "bind to processors"};
    return fmt::format("cannot {}: {}", stages.at(static_cast<std::size_t>(stage)),
                       std::strerror(cause));
}

Result<ForkedProcess> fork_process(const ProcessPlan& plan) {
    auto status = make_pipe();
    if (!status) return std::unexpected(status.error());
    if (::fcntl(status->read.get(), F_SETFL, O_NONBLOCK) != 0)
        return fail(Errc::internal, "fcntl: {}", std::strerror(errno));
    Child child = prepare(plan, status->write.get());
    pid_t pid = 0;
    int error = 0;
    {
        const AllSignalsBlocked blocked;
        pid = ::fork();
        error = errno;
        if (pid == 0) run_child(child);
    }
    if (pid < 0) return fail(Errc::internal, "fork: {}", std::strerror(error));
    // Parent and child both do this: whichever is first, the group exists when we go on.
    if (plan.group == ProcessPlan::Group::own_group) ::setpgid(pid, pid);
    return ForkedProcess{pid, std::move(status->read)};
}

std::optional<std::expected<void, ExecFailure>> exec_result(int exec_status) {
    ExecFailure failure{};
    ssize_t n = 0;
    do {
        n = ::read(exec_status, &failure, sizeof failure);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n < static_cast<ssize_t>(sizeof failure)) return std::expected<void, ExecFailure>{};
    return std::unexpected(failure);
}

Result<pid_t> spawn_process(const ProcessPlan& plan) {
    auto status = make_pipe();
    if (!status) return std::unexpected(status.error());
    Child child = prepare(plan, status->write.get());
    pid_t pid = 0;
    int error = 0;
    {
        const AllSignalsBlocked blocked;
        pid = ::vfork();  // returns when the child has called exec or exited
        error = errno;
        if (pid == 0) run_child(child);
    }
    if (pid < 0) return fail(Errc::internal, "{}: fork: {}", plan.path, std::strerror(error));
    status->write.reset();
    const auto executed = exec_result(status->read.get());
    if (!executed || executed->has_value()) return pid;
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return fail(executed->error().code(), "{}: {}", plan.path, executed->error().message());
}

int exit_code_of(int wait_status) {
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::string describe_exit(int wait_status) {
    if (!WIFSIGNALED(wait_status))
        return fmt::format("ended with exit code {}", exit_code_of(wait_status));
    const auto name = signal_name(WTERMSIG(wait_status));
    return fmt::format("was ended by signal {} ({})", WTERMSIG(wait_status),
                       name.empty() ? "SIG?" : name);
}

std::vector<unsigned long> cpu_mask(std::span<const unsigned> cpus) {
    constexpr unsigned kBits = std::numeric_limits<unsigned long>::digits;
    std::vector<unsigned long> mask;
    for (const unsigned cpu : cpus) {
        if (cpu / kBits >= mask.size()) mask.resize(cpu / kBits + 1);
        mask[cpu / kBits] |= 1ul << cpu % kBits;
    }
    return mask;
}

std::vector<char*> pointers(std::span<const std::string> strings) {
    std::vector<char*> list;
    list.reserve(strings.size() + 1);
    for (const std::string& string : strings) list.push_back(const_cast<char*>(string.c_str()));
    list.push_back(nullptr);
    return list;
}

}  // namespace dtrun
