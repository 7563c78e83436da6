#include "worker/ranks/rank_process.h"

#include "base/strings.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace dtrun::ranks {
namespace {

/// Room for bursts, so that a rank that prints seldom waits for us, and not more than caches hold.
constexpr int kPipeBytes = 256 << 10;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> list;
    list.reserve(strings.size() + 1);
    for (const std::string& string : strings) list.push_back(const_cast<char*>(string.c_str()));
    list.push_back(nullptr);
    return list;
}

/// What the child needs, made before the fork: after it, only async-signal-safe calls.
struct ChildPlan {
    pid_t parent;
    int in, out, err, status, inherited;
    bool own_session;
    rlimit descriptors;
    const char* directory;
    const char* path;
    char** argv;
    char** env;
    char** shell_argv;
};

[[noreturn]] void child_fails(const ChildPlan& plan, int step) {
    const std::array<int, 2> report{step, errno};
    if (::write(plan.status, report.data(), sizeof report) < 0) ::_exit(125);
    ::_exit(126);
}

[[noreturn]] void run_child(const ChildPlan& plan) {
    plan.own_session ? ::setsid() : ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(125);  // the agent died before the line above
    sigset_t none;
    sigemptyset(&none);
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (::dup2(plan.in, 0) < 0 || ::dup2(plan.out, 1) < 0 || ::dup2(plan.err, 2) < 0)
        child_fails(plan, 0);
    // Whatever else there is, also what was accepted a moment ago and has no such mark yet.
    ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    if (plan.inherited > 2) ::fcntl(plan.inherited, F_SETFD, 0);
    ::setrlimit(RLIMIT_NOFILE, &plan.descriptors);
    if (::chdir(plan.directory) != 0) child_fails(plan, 1);
    ::execve(plan.path, plan.argv, plan.env);
    // A script without "#!" is the shell's, as execvp has it.
    if (errno == ENOEXEC) ::execve("/bin/sh", plan.shell_argv, plan.env);
    child_fails(plan, 2);
}

Result<void> set_non_blocking(const Fd& fd) {
    if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0) return {};
    return fail(Errc::internal, "fcntl: {}", strerror(errno));
}

Result<void> check_executable(const std::string& file, const std::string& shown) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) {
        if (errno == EACCES) return fail(Errc::denied, "{}: {}", shown, strerror(errno));
        return fail(Errc::not_found, "{}: no such file", shown);
    }
    if (S_ISDIR(info.st_mode)) return fail(Errc::denied, "{}: is a directory", shown);
    if (::access(file.c_str(), X_OK) != 0)
        return fail(Errc::denied, "{}: not executable (chmod +x, or run it with its interpreter)",
                    shown);
    return {};
}

}  // namespace

Result<RankProcess> spawn_rank(const RankCommand& command) {
    auto out = make_pipe();
    auto err = make_pipe();
    auto status = make_pipe();
    for (const auto* made : {&out, &err, &status})
        if (!*made) return std::unexpected(made->error());
    Pipe in;
    if (command.wants_input) {
        auto made = make_pipe();
        if (!made) return std::unexpected(made.error());
        in = std::move(*made);
    } else {
        in.read.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    ::fcntl(out->write.get(), F_SETPIPE_SZ, kPipeBytes);  // a limit of the system may forbid it

    std::vector<std::string> shell_words{"/bin/sh", command.path};
    shell_words.insert(shell_words.end(), command.argv.begin() + 1, command.argv.end());
    rlimit descriptors{};
    ::getrlimit(RLIMIT_NOFILE, &descriptors);
    if (command.descriptor_limit != 0) descriptors.rlim_cur = command.descriptor_limit;
    auto argv = pointers(command.argv);
    auto env = pointers(command.env);
    auto shell_argv = pointers(shell_words);
    const ChildPlan plan{::getpid(),           in.read.get(),       out->write.get(),
                         err->write.get(),     status->write.get(), command.inherited,
                         command.own_session,  descriptors,         command.directory.c_str(),
                         command.path.c_str(), argv.data(),         env.data(),
                         shell_argv.data()};
    // What the child is sent before it has made signals its own must not run our handlers there.
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t pid = ::fork();
    const int fork_error = errno;
    if (pid == 0) run_child(plan);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (pid < 0) return fail(Errc::internal, "fork: {}", strerror(fork_error));
    // As the child does: whoever is first, the group exists when we go on.
    if (!command.own_session) ::setpgid(pid, pid);

    RankProcess process{pid, std::move(in.write), std::move(out->read), std::move(err->read),
                        std::move(status->read)};
    for (const Fd* fd : {&process.in, &process.out, &process.err, &process.exec_status})
        if (*fd)
            if (auto done = set_non_blocking(*fd); !done) return std::unexpected(done.error());
    return process;
}

std::optional<Result<void>> exec_result(int exec_status) {
    std::array<int, 2> report{};
    ssize_t n = 0;
    do {
        n = ::read(exec_status, report.data(), sizeof report);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n < static_cast<ssize_t>(sizeof report)) return Result<void>{};
    const int cause = report[1];
    const Errc code = cause == ENOENT   ? Errc::not_found
                      : cause == EACCES ? Errc::denied
                                        : Errc::internal;
    constexpr std::array<const char*, 3> steps{"redirect", "change directory", "execute"};
    const char* step = steps[static_cast<std::size_t>(report[0])];
    if (cause == ENOENT && report[0] == 2)
        return fail(code, "cannot execute: the interpreter that the file names is not there");
    return fail(code, "cannot {}: {}", step, strerror(cause));
}

Result<std::string> find_program(const std::string& program, const std::string& directory,
                                 const std::string& path) {
    const auto from_directory = [&directory](const std::string& file) {
        return file.starts_with('/') ? file : directory + "/" + file;
    };
    if (program.find('/') != std::string::npos) {
        const std::string file = from_directory(program);
        if (auto done = check_executable(file, program); !done)
            return std::unexpected(done.error());
        return file;
    }
    std::optional<Error> not_executable;
    for (const std::string_view part : split(path, ':')) {
        const std::string file =
            from_directory(part.empty() ? "." : std::string(part)) + "/" + program;
        const auto done = check_executable(file, file);
        if (done) return file;
        if (done.error().code == Errc::denied && !not_executable) not_executable = done.error();
    }
    if (not_executable) return std::unexpected(*not_executable);
    const std::string here = from_directory(program);
    if (::access(here.c_str(), F_OK) == 0) {
        const bool runs = ::access(here.c_str(), X_OK) == 0;
        return fail(Errc::not_found,
                    "{}: not found on PATH; there is one in the working directory: write {}{}",
                    program, runs ? "./" : "its interpreter first, e.g. python ", program);
    }
    return fail(Errc::not_found, "{}: not found on PATH ({})", program, path);
}

}  // namespace dtrun::ranks
