#include "rendezvous/links/failure_detector.h"

#include "base/log.h"

#include <fmt/format.h>
#include <algorithm>
#include <ctime>
#include <thread>
#include <utility>

namespace dtrun {
namespace {

/// Timers on a busy machine are less late, and so is the answer to a beat.
constexpr std::chrono::milliseconds kLate{250};
/// Peers on a quick network have answered after that.
constexpr std::chrono::milliseconds kRest{1};
constexpr std::size_t kWorthResting = 4;  // peers
/// Who uses more of a processor between two beats may have something else to do than to rest.
constexpr std::chrono::milliseconds kIdleUse{5};

std::chrono::nanoseconds processor_time() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

FailureDetector::FailureDetector(asio::any_io_executor executor, std::chrono::milliseconds timeout)
    : timer_(executor), timeout_(timeout) {}

asio::awaitable<void> FailureDetector::run(std::function<Pace()> beat) {
    beat_ = std::move(beat);
    last_ = Clock::now();
    next_ = last_ + kHeartbeatInterval;
    for (;;) {
        timer_.expires_at(next_);
        co_await timer_.async_wait(use_tuple);
        const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
        if (state.cancelled() != asio::cancellation_type::none) break;
        const Deadline now = Clock::now();
        if (now < next_) continue;  // it was moved meanwhile
        const Deadline due = next_;
        const Pace pace = this->beat(now);
        next_ = (lateness_ > Clock::duration(0) ? now : due) + interval(pace);
    }
    beat_ = nullptr;
}

/// Half an interval passes before our own timer stands in for a beat that is due.
void FailureDetector::follow() {
    if (!beat_) return;
    const Deadline now = Clock::now();
    const Pace pace = beat(now);
    next_ = now + (pace == Pace::alert ? interval(pace) : interval(pace) * 3 / 2);
    timer_.cancel();
}

void FailureDetector::hasten(Pace pace) {
    const Deadline latest = after(interval(pace));
    if (!beat_ || next_ <= latest) return;
    next_ = latest;
    timer_.cancel();
}

/// After what waits to be sent, as heartbeats do, has been sent.
void FailureDetector::rest(std::size_t asked) {
    if (asked < kWorthResting || Clock::simulated != nullptr) return;
    const std::chrono::nanoseconds used = processor_time();
    if (used - std::exchange(used_, used) > kIdleUse) return;
    asio::post(timer_.get_executor(), [] { std::this_thread::sleep_for(kRest); });
}

Pace FailureDetector::beat(Deadline now) {
    lateness_ = now > next_ + kLate ? now - next_ : Clock::duration(0);
    if (lateness_ > Clock::duration(0)) {
        pause_ = now - may_have_stopped_at();
        log::info("did not run for {:.1f} s", std::chrono::duration<double>(pause_).count());
        awake_since_ = next_ = now;
    }
    last_ = now;
    return beat_();
}

/// Short timeouts leave no time for long intervals.
std::chrono::milliseconds FailureDetector::interval(Pace pace) const {
    if (pace == Pace::alert || timeout_ < kHeartbeatTimeout) return kHeartbeatInterval;
    return pace == Pace::calm ? kCalmHeartbeatInterval : kStillHeartbeatInterval;
}

bool FailureDetector::is_late(const Link& link) const {
    const Deadline heard = std::max(link.last_heard(), awake_since_);
    return Clock::now() - heard > interval(Pace::calm) + kLate;
}

/// Peers answer a beat, so they were heard a moment after one: silence that is just the timeout at a beat is
/// none yet, lest that moment decide.
std::optional<std::chrono::milliseconds> FailureDetector::lost(Deadline last_heard,
                                                               int timeouts) const {
    const Deadline now = Clock::now();
    if (now - std::max(last_heard, awake_since_) < timeouts * timeout_ + kLate) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - last_heard);
}

Deadline FailureDetector::awake_since() const {
    const Deadline now = Clock::now();
    return now > next_ + kLate ? now : awake_since_;  // the beat may be still to come
}

/// When a process that is late now may have stopped: after its last beat. Of long intervals most is left out, in which it
/// had nothing to do.
Deadline FailureDetector::may_have_stopped_at() const {
    return std::max(last_, next_ - kCalmHeartbeatInterval * 3 / 2);
}

std::optional<std::chrono::milliseconds> FailureDetector::pause() const {
    const Deadline now = Clock::now();
    Clock::duration pause{};
    if (now > next_ + kLate)
        pause = now - may_have_stopped_at();  // the beat is still to come
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
