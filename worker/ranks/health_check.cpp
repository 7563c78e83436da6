#include "worker/ranks/health_check.h"

#include "base/loop/deadline.h"
#include "base/strings.h"
#include "base/subprocess.h"
#include "worker/ranks/supervisor.h"

#include <unistd.h>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::ranks {
namespace {

constexpr std::size_t kTailBytes = 4096;

/// What the command prints, until its end is known.
struct Check {
    explicit Check(const asio::any_io_executor& executor)
        : out(executor), err(executor), ended(executor) {}

    asio::posix::stream_descriptor out, err;
    std::array<char, 4096> piece{};
    std::string tail;  ///< of its standard error
    Timer ended;
    std::optional<int> status;
};

/// Reads as much as a pipe holds, so that others have their turn besides one that writes without end.
/// \return whether there may be more later
bool read_all(Check& check, asio::posix::stream_descriptor& from) {
    for (int pieces = 0; pieces < 64; ++pieces) {
        const ssize_t n = ::read(from.native_handle(), check.piece.data(), check.piece.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 && errno == EAGAIN;
        if (&from != &check.err) continue;
        check.tail.append(check.piece.data(), static_cast<std::size_t>(n));
        if (check.tail.size() > 2 * kTailBytes) check.tail.erase(0, check.tail.size() - kTailBytes);
    }
    return true;
}

/// Reads on, so that the command never waits for us.
void keep_reading(const std::shared_ptr<Check>& check, asio::posix::stream_descriptor& from) {
    from.async_wait(asio::posix::descriptor_base::wait_read,
                    [check, &from](boost::system::error_code error) {
                        if (!error && read_all(*check, from)) keep_reading(check, from);
                    });
}

/// ": " and the last line that says something, or nothing.
std::string last_words(std::string_view text) {
    std::string_view last;
    for (const std::string_view line : split(text, '\n'))
        if (const std::string_view said = trim(line); !said.empty()) last = said;
    return last.empty() ? "" : fmt::format(": {}", last);
}

}  // namespace

asio::awaitable<Result<void>> check_health(Supervisor& processes, RankCommand command,
                                           std::chrono::seconds limit) {
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    const auto check = std::make_shared<Check>(executor);
    auto started = processes.start_helper(command, [check](int status) {
        check->status = status;
        check->ended.cancel();
    });
    if (!started) co_return fail(started.error(), "--health-check");
    check->out.assign(started->out.release());
    check->err.assign(started->err.release());
    keep_reading(check, check->out);
    keep_reading(check, check->err);
    check->ended.expires_after(limit);
    if (!check->status) co_await check->ended.async_wait(use_tuple);
    const bool is_late = !check->status;
    if (is_late) processes.kill_helper(started->pid);
    read_all(*check, check->err);  // what it has printed last
    check->out.close();
    check->err.close();
    const std::string said = last_words(check->tail);
    if (is_late)
        co_return fail(Errc::timed_out, "--health-check: has not ended within {} s{}",
                       limit.count(), said);
    if (*check->status == 0) co_return Result<void>{};
    co_return fail(Errc::internal, "--health-check: {}{}", describe_exit(*check->status), said);
}

}  // namespace dtrun::ranks
