#include "launcher/command_output.h"

#include "base/deadline.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace dtrun {
namespace {

constexpr std::size_t kOutputBytesMax = 16u << 20;
constexpr std::chrono::seconds kCommandLimit{10};

Result<pid_t> start(const std::vector<std::string>& words, int output, Captured captured) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (captured == Captured::both)
        ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
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

}  // namespace

Result<CommandOutput> command_output(const std::vector<std::string>& words, Captured captured) {
    auto pipe = make_pipe();
    if (!pipe) return std::unexpected(pipe.error());
    const auto pid = start(words, pipe->write.get(), captured);
    if (!pid) return std::unexpected(pid.error());
    pipe->write.reset();
    auto text = read_until(pipe->read.get(), after(kCommandLimit));
    if (!text) ::kill(*pid, SIGKILL);
    int status = 0;
    while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!text) return fail(text.error(), "{}", words[0]);
    return CommandOutput{std::move(*text),
                         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

}  // namespace dtrun
