#include "rendezvous/links/failure_detector.h"

#include "base/log.h"
#include "rendezvous/wire/heartbeat.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun {
namespace {

constexpr std::chrono::milliseconds kLate{250};  // timers on a busy machine are less late

}  // namespace

FailureDetector::FailureDetector(asio::any_io_executor executor, std::chrono::milliseconds timeout)
    : timer_(executor), timeout_(timeout) {}

asio::awaitable<void> FailureDetector::run(std::function<void()> beat) {
    next_ = Clock::now();
    for (;;) {
        next_ += kHeartbeatInterval;
        timer_.expires_at(next_);
        const auto [error] = co_await timer_.async_wait(use_tuple);
        if (error) co_return;
        const Deadline now = Clock::now();
        if (now > next_ + kLate) {
            pause_ = now - next_ + kHeartbeatInterval;
            log::info("did not run for {:.1f} s", std::chrono::duration<double>(pause_).count());
            awake_since_ = next_ = now;
        }
        beat();
    }
}

std::optional<std::chrono::milliseconds> FailureDetector::lost(Deadline last_heard,
                                                               int timeouts) const {
    const Deadline now = Clock::now();
    if (now - std::max(last_heard, awake_since_) < timeouts * timeout_) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - last_heard);
}

Deadline FailureDetector::awake_since() const {
    const Deadline now = Clock::now();
    return now > next_ + kLate ? now : awake_since_;  // the beat may be still to come
}

std::optional<std::chrono::milliseconds> FailureDetector::pause() const {
    const Deadline now = Clock::now();
    Clock::duration pause{};
    if (now > next_ + kLate)
        pause = now - next_ + kHeartbeatInterval;  // the beat is still to come
    else if (now < awake_since_ + timeout_)
        pause = pause_;
    if (pause < timeout_) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::milliseconds>(pause);
}

std::string describe_silence(std::chrono::milliseconds silence) {
    return fmt::format("last heard {:.1f} s ago", std::chrono::duration<double>(silence).count());
}

std::string describe_pause(std::optional<std::chrono::milliseconds> pause) {
    if (!pause) return "";
    return fmt::format(
        "; dtrun itself had not run for {:.1f} s: its machine is too busy, or it was stopped",
        std::chrono::duration<double>(*pause).count());
}

}  // namespace dtrun
