#include "lab/rank/run_program.h"

#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <csignal>

extern "C" char** environ;

namespace dtrun::lab::rank {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kOutputMax = 1u << 20;

/// \return false if it did not end in time
bool read_all(int descriptor, Clock::time_point deadline, std::string& text) {
    std::array<char, 4'096> piece;
    while (text.size() < kOutputMax) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd ready{descriptor, POLLIN, 0};
        if (left.count() <= 0) return false;
        const int polled = ::poll(&ready, 1, static_cast<int>(left.count()));
        if (polled < 0 && errno == EINTR) continue;
        if (polled <= 0) return false;
        const ssize_t got = ::read(descriptor, piece.data(), piece.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0;
        text.append(piece.data(), static_cast<std::size_t>(got));
    }
    return false;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& words,
                                     std::chrono::milliseconds limit) {
    auto pipe = make_pipe();
    if (!pipe) return std::nullopt;
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, pipe->write.get(), 1);
    ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid = 0;
    const int error =
        ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    pipe->write.reset();
    if (error != 0) return std::nullopt;
    std::string text;
    const bool in_time = read_all(pipe->read.get(), Clock::now() + limit, text);
    if (!in_time) ::kill(pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!in_time || status != 0) return std::nullopt;
    return text;
}

}  // namespace dtrun::lab::rank
