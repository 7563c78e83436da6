#include "worker/ranks/helper_run.h"

#include "base/loop/deadline.h"
#include "base/strings.h"
#include "worker/ranks/supervisor.h"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

namespace dtrun::ranks {
namespace {

constexpr std::size_t kTailBytes = 4096;
constexpr std::chrono::seconds kKilledLimit{1};  // from SIGKILL to its end

/// What the command prints, until its end is known.
struct Helper {
    Helper(const asio::any_io_executor& executor, std::size_t out_max)
        : out(executor), err(executor), out_bytes_max(out_max), ended(executor) {}

    void keep(const asio::posix::stream_descriptor& from, std::string_view bytes) {
        if (&from == &out) {
            end.out.append(
                bytes.substr(0, out_bytes_max - std::min(out_bytes_max, end.out.size())));
            return;
        }
        end.err.append(bytes);
        if (end.err.size() > 2 * kTailBytes) end.err.erase(0, end.err.size() - kTailBytes);
    }

    asio::posix::stream_descriptor out, err;
    std::size_t out_bytes_max;
    std::array<char, 4096> piece{};
    HelperEnd end{};
    Timer ended;
};

/// Reads as much as a pipe holds, so that others have their turn besides one that writes without end.
/// \return whether there may be more later
bool read_all(Helper& helper, asio::posix::stream_descriptor& from) {
    for (int pieces = 0; pieces < 64; ++pieces) {
        const ssize_t n = ::read(from.native_handle(), helper.piece.data(), helper.piece.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 && errno == EAGAIN;
        helper.keep(from, std::string_view(helper.piece.data(), static_cast<std::size_t>(n)));
    }
    return true;
}

/// Reads on, so that the command never waits for us.
void keep_reading(const std::shared_ptr<Helper>& helper, asio::posix::stream_descriptor& from) {
    from.async_wait(asio::posix::descriptor_base::wait_read,
                    [helper, &from](boost::system::error_code error) {
                        if (!error && read_all(*helper, from)) keep_reading(helper, from);
                    });
}

}  // namespace

asio::awaitable<Result<HelperEnd>> run_helper(Supervisor& processes, RankCommand command,
                                              std::chrono::milliseconds limit,
                                              std::size_t out_bytes_max) {
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    const auto helper = std::make_shared<Helper>(executor, out_bytes_max);
    auto started = processes.start_helper(command, [helper](int status) {
        helper->end.status = status;
        helper->ended.cancel();
    });
    if (!started) co_return std::unexpected(started.error());
    helper->out.assign(started->out.release());
    helper->err.assign(started->err.release());
    keep_reading(helper, helper->out);
    keep_reading(helper, helper->err);
    helper->ended.expires_after(limit);
    if (!helper->end.status) co_await helper->ended.async_wait(use_tuple);
    const bool in_time = helper->end.status.has_value();
    if (!in_time) {
        // Who asks may have to look at what it has left behind, so it has to be gone.
        processes.kill_helper(started->pid);
        helper->ended.expires_after(kKilledLimit);
        co_await helper->ended.async_wait(use_tuple);
    }
    // What it has printed last: no more than a pipe holds.
    read_all(*helper, helper->out);
    read_all(*helper, helper->err);
    helper->out.close();
    helper->err.close();
    HelperEnd end = helper->end;
    if (!in_time) end.status.reset();
    co_return end;
}

std::string last_words(std::string_view text) {
    std::string_view last;
    for (const std::string_view line : split(text, '\n'))
        if (const std::string_view said = trim(line); !said.empty()) last = said;
    return last.empty() ? "" : fmt::format(": {}", last);
}

}  // namespace dtrun::ranks
