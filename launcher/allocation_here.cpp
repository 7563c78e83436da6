#include "launcher/allocation_here.h"

#include "base/deadline.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>

namespace dtrun {
namespace {

constexpr std::size_t kOutputBytesMax = 16u << 20;
constexpr std::chrono::seconds kCommandLimit{10};

/// A program whose standard output we read, in a process of its own.
Result<pid_t> start(const std::vector<std::string>& words, int output) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    pid_t pid = -1;
    const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT) return fail(Errc::not_found, "{}: not found in PATH", words[0]);
    if (error != 0) return fail(Errc::internal, "{}: {}", words[0], std::strerror(error));
    return pid;
}

Result<std::string> read_until(int fd, Deadline deadline) {
    std::string text;
    char buffer[4096];
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd waiting{fd, POLLIN, 0};
        const int ready =
            ::poll(&waiting, 1, static_cast<int>(std::max<long long>(left.count(), 0)));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0)
            return fail(Errc::timed_out, "no answer within {} s", kCommandLimit.count());
        const ssize_t n = ::read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return text;
        text.append(buffer, static_cast<std::size_t>(n));
        if (text.size() > kOutputBytesMax)
            return fail(Errc::invalid_input, "more than {} bytes", kOutputBytesMax);
    }
}

/// Standard output of a program that exits 0; its standard error is ours.
Result<std::string> output_of(const std::vector<std::string>& words) {
    auto pipe = make_pipe();
    if (!pipe) return std::unexpected(pipe.error());
    const auto pid = start(words, pipe->write.get());
    if (!pid) return std::unexpected(pid.error());
    pipe->write.reset();
    auto text = read_until(pipe->read.get(), after(kCommandLimit));
    if (!text) ::kill(*pid, SIGKILL);
    int status = 0;
    while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!text) return fail(text.error(), "{}", words[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail(Errc::invalid_input, "{} failed", words[0]);
    return text;
}

}  // namespace

Result<std::optional<Allocation>> slurm_here(EnvironmentView environment) {
    if (!find_variable(environment, "SLURM_JOB_ID") && !find_variable(environment, "SLURM_JOBID"))
        return std::nullopt;
    return allocation_here(environment);
}

Result<std::optional<Allocation>> allocation_here(EnvironmentView environment) {
    AllocationInput input;
    input.variable = [environment](std::string_view name) {
        return find_variable(environment, name);
    };
    input.file = [](const std::string& path) { return read_file(path); };
    input.command = output_of;
    return find_allocation(input);
}

}  // namespace dtrun
