#include "collectives/user_text.h"

#include <fmt/format.h>

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <vector>

namespace dtrun::collectives {
namespace {

/// How many spans of ranks a line names.
constexpr std::size_t kSpansMax = 8;
/// How many ranks are named one by one.
constexpr std::size_t kNamedMax = 8;
/// Threads that watch over the group say these lines: a terminal that is stopped must not stop them.
constexpr int kReaderPatienceMs = 1'000;

}  // namespace

std::string name_ranks(std::span<const std::uint32_t> ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    std::size_t at = 0;
    for (std::size_t spans = 0; at < ranks.size() && spans < kSpansMax; ++spans) {
        std::size_t last = at;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        text += at == 0 ? "" : ", ";
        text += std::to_string(ranks[at]);
        if (last > at) text += (last > at + 1 ? "-" : ", ") + std::to_string(ranks[last]);
        at = last + 1;
    }
    if (at < ranks.size()) text += fmt::format(" and {} more", ranks.size() - at);
    return text;
}

std::string name_some(std::span<const std::uint32_t> ranks,
                      const std::function<std::string(std::uint32_t)>& name) {
    std::string names;
    for (const std::uint32_t rank : ranks.first(std::min(ranks.size(), kNamedMax)))
        names += (names.empty() ? "" : ", ") + name(rank);
    if (ranks.size() > kNamedMax) names += fmt::format(" and {} more", ranks.size() - kNamedMax);
    return names;
}

void tell_user(std::span<const std::string> lines) {
    std::string text;
    for (const std::string& line : lines) text += "dtrun: " + line + "\n";
    for (std::size_t at = 0; at < text.size();) {
        // What can be written of a pipe that has room does not block.
        pollfd output{STDERR_FILENO, POLLOUT, 0};
        if (::poll(&output, 1, kReaderPatienceMs) == 0) return;  // nobody reads it
        const std::size_t piece = std::min<std::size_t>(text.size() - at, PIPE_BUF);
        const ssize_t done = ::write(STDERR_FILENO, text.data() + at, piece);
        if (done < 0 && errno != EINTR) return;
        at += static_cast<std::size_t>(std::max<ssize_t>(done, 0));
    }
}

void tell_user_who_waits(std::span<const std::string> lines) {
    if (lines.empty()) return;
    static std::atomic_flag explained;
    std::vector<std::string> told(lines.begin(), lines.end());
    if (!explained.test_and_set())
        told.emplace_back(
            "who has not come may only be busy, and this ends nothing: under dtrun `dtrun stacks` "
            "shows where it is; "
            "HOROVOD_STALL_CHECK_TIME_SECONDS is the time after which this is told");
    tell_user(told);
}

}  // namespace dtrun::collectives
