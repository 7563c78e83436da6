#include "base/process/child_start.h"

#include "base/process/subprocess.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>

// Sanitizers keep notes on a thread in its own memory, and two that are the same to them would mix them up.
#define DTRUN_IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

// ThreadSanitizer's clone() has the child begin with what is on its parent's stack.
#if defined(__SANITIZE_THREAD__)
#define DTRUN_CLONES 0
#elif defined(__x86_64__) || defined(__aarch64__)
#define DTRUN_CLONES 1
#else
#define DTRUN_CLONES 0
#endif

namespace dtrun {
namespace {

#if defined(__x86_64__)
/// A system call that leaves errno alone. \return as the kernel has it: -errno for a failure
DTRUN_IN_CHILD long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
    long result = 0;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
/// A system call that leaves errno alone. \return as the kernel has it: -errno for a failure
DTRUN_IN_CHILD long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                     : "memory", "cc");
    return x0;
}
#else
/// On other processors a child has a copy of our memory, and an errno of its own.
long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
    const long result = ::syscall(number, a, b, c, d, e);
    return result < 0 ? -errno : result;
}
#endif

using Stage = ExecFailure::Stage;

DTRUN_IN_CHILD long to_long(const void* pointer) {
    return reinterpret_cast<long>(pointer);
}

[[noreturn]] DTRUN_IN_CHILD void end(int code) {
    for (;;) call(SYS_exit_group, code);
}

/// \return whether somebody can read it
DTRUN_IN_CHILD bool report(const ChildStart& start, int stage, long cause) {
    ChildReport said;
    said.stage = stage;
    said.cause = static_cast<int>(cause);
    return call(SYS_write, start.status, to_long(&said), sizeof said) == sizeof said;
}

/// \param result  of the system call that has failed
[[noreturn]] DTRUN_IN_CHILD void fails(const ChildStart& start, Stage stage, long result) {
    end(report(start, static_cast<int>(stage), -result) ? 126 : 125);
}

DTRUN_IN_CHILD void set_signals(const ChildStart& start) {
    // What rt_sigaction() takes: the action is first, and everything else is 0.
    constexpr int kWords = 4;
    constexpr long kMaskBytes = 8;
    const long ignore = reinterpret_cast<long>(SIG_IGN);
    for (int signal = 1; signal <= 64; ++signal) {
        long action[kWords], before[kWords];
        for (int i = 0; i < kWords; ++i) action[i] = before[i] = 0;
        call(SYS_rt_sigaction, signal, to_long(action), to_long(before), kMaskBytes);
        if (before[0] != ignore || !start.keep_ignored_signals || signal == SIGPIPE) continue;
        call(SYS_rt_sigaction, signal, to_long(before), 0, kMaskBytes);
    }
    call(SYS_rt_sigprocmask, SIG_SETMASK, to_long(&start.blocked_signals), 0, kMaskBytes);
}

/// Leaves the parent's table of descriptors: of thousands, which belong to other ranks, only those are copied that
/// come before the last one of ours.
DTRUN_IN_CHILD void unshare_descriptors(const ChildStart& start) {
    int last = start.status;
    for (std::size_t i = 0; i < start.given_count; ++i)
        if (start.given[i].ours > last) last = start.given[i].ours;
    const long done = call(SYS_close_range, last + 1, ~0u, CLOSE_RANGE_UNSHARE);
    if (done != 0) fails(start, Stage::redirect, done);  // nothing may be changed in the parent's
    report(start, ChildReport::kHasOwnDescriptors, 0);
}

/// Moves `fd` to a free number if the program is to get another descriptor at its number.
DTRUN_IN_CHILD long clear_number(const ChildStart& start, int fd) {
    for (std::size_t i = 0; i < start.given_count; ++i)
        if (start.given[i].number == fd)
            return call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, start.first_free);
    return fd;
}

/// Has exec close every descriptor above standard error. The call is missing in kernels before 5.11, and where a
/// container's seccomp does not know it.
DTRUN_IN_CHILD void close_others_at_exec(const ChildStart& start) {
    if (call(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
    for (int fd = STDERR_FILENO + 1; fd < start.descriptors_max; ++fd)
        call(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
}

DTRUN_IN_CHILD void set_descriptors(ChildStart& start) {
    const long status = clear_number(start, start.status);
    if (status < 0) fails(start, Stage::redirect, status);
    start.status = static_cast<int>(status);
    for (std::size_t i = 0; i < start.given_count; ++i) {
        ChildStart::Given& given = start.given[i];
        long source = given.ours;
        if (source < 0)
            source = call(SYS_openat, AT_FDCWD, to_long("/dev/null"), O_RDWR | O_CLOEXEC);
        if (source >= 0 && source != given.number)
            source = clear_number(start, static_cast<int>(source));
        if (source < 0) fails(start, Stage::redirect, source);
        given.ours = static_cast<int>(source);
    }
    // This covers every other descriptor, also an accepted one that is not yet close-on-exec.
    if (start.descriptors != ChildStart::Descriptors::inherited) close_others_at_exec(start);
    for (std::size_t i = 0; i < start.given_count; ++i) {
        const ChildStart::Given& given = start.given[i];
        const long done = given.ours == given.number ? call(SYS_fcntl, given.number, F_SETFD, 0)
                                                     : call(SYS_dup3, given.ours, given.number, 0);
        if (done < 0) fails(start, Stage::redirect, done);
    }
}

/// Whether the file is a program in the system's own format, of which no shell can make anything: it is for
/// another processor, or damaged.
DTRUN_IN_CHILD bool is_elf(const char* file) {
    char begin[4] = {};
    const long descriptor = call(SYS_openat, AT_FDCWD, to_long(file), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const long bytes = call(SYS_read, descriptor, to_long(begin), static_cast<long>(sizeof begin));
    call(SYS_close, descriptor);
    return bytes == 4 && begin[0] == '\x7f' && begin[1] == 'E' && begin[2] == 'L' &&
           begin[3] == 'F';
}

/// As execvpe() does it, but for is_elf(). \return why nothing was executed, as of a system call
DTRUN_IN_CHILD long execute(const ChildStart& start) {
    bool denied = false;
    long result = -ENOENT;
    for (const char* const* file = start.files; *file != nullptr; ++file) {
        result = call(SYS_execve, to_long(*file), to_long(start.argv), to_long(start.env));
        if (result == -ENOEXEC && !is_elf(*file)) {
            start.script_argv[1] = const_cast<char*>(*file);
            result = call(SYS_execve, to_long(start.script_argv[0]), to_long(start.script_argv),
                          to_long(start.env));
        }
        denied = denied || result == -EACCES;
        if (result != -EACCES && result != -ENOENT && result != -ENOTDIR && result != -ESTALE &&
            result != -ENODEV && result != -ETIMEDOUT)
            return result;
    }
    return denied ? -EACCES : result;
}

}  // namespace

[[noreturn]] DTRUN_IN_CHILD void start_program(ChildStart& start) {
    if (start.descriptors == ChildStart::Descriptors::unshared_low) unshare_descriptors(start);
    if (start.group == ChildStart::Group::own_session) call(SYS_setsid);
    if (start.group == ChildStart::Group::own_group) call(SYS_setpgid, 0, 0);
    if (start.death_signal != 0) {
        call(SYS_prctl, PR_SET_PDEATHSIG, start.death_signal);
        // Whoever is our parent now: ours has ended before the line above.
        if (call(SYS_getppid) != start.parent) end(125);
    }
    // Kept over exec. Without Yama it is unknown, and not needed.
    if (start.may_be_traced) call(SYS_prctl, PR_SET_PTRACER, start.parent);
    set_signals(start);
    set_descriptors(start);
    long done = 0;
    if (start.controlling_terminal && (done = call(SYS_ioctl, STDIN_FILENO, TIOCSCTTY, 0)) != 0)
        fails(start, Stage::redirect, done);
    if (start.descriptor_limit != nullptr)
        call(SYS_prlimit64, 0, RLIMIT_NOFILE, to_long(start.descriptor_limit), 0);
    if (start.cpus != nullptr &&
        (done = call(SYS_sched_setaffinity, 0, static_cast<long>(start.cpus_bytes),
                     to_long(start.cpus))) < 0)
        fails(start, Stage::bind, done);
    if (start.directory != nullptr && (done = call(SYS_chdir, to_long(start.directory))) != 0)
        fails(start, Stage::change_directory, done);
    if (start.execute == nullptr) fails(start, Stage::execute, execute(start));
    start.execute(start.execute_context, start.argv, start.env);
    fails(start, Stage::execute, -errno);
}

[[noreturn]] DTRUN_IN_CHILD static int begin(void* start) {
    start_program(*static_cast<ChildStart*>(start));
}

bool can_unshare_low_descriptors() {
    // An empty range is refused by a kernel that knows the call, and nothing else happens.
    return ::syscall(SYS_close_range, 1u, 0u, CLOSE_RANGE_UNSHARE) != 0 && errno == EINVAL;
}

pid_t start_sharing_memory(ChildStart& start, std::byte* stack_end) {
    if (!DTRUN_CLONES) {
        errno = EINVAL;
        return -1;
    }
    int flags = CLONE_VM | SIGCHLD;
    if (start.descriptors == ChildStart::Descriptors::unshared_low) flags |= CLONE_FILES;
    return ::clone(begin, stack_end, flags, &start);
}

}  // namespace dtrun
