#pragma once

#include "base/loop/asio.h"
#include "launcher/head/host_starter.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace dtrun::head {

/// How many log-ins go on at once. Who has waited longest is next.
///
/// Thread: the io_context's.
class LoginSlots {
public:
    LoginSlots(asio::any_io_executor executor, unsigned slots)
        : executor_(std::move(executor)), free_(slots) {}
    LoginSlots(const LoginSlots&) = delete;
    LoginSlots& operator=(const LoginSlots&) = delete;

    /// Waits for a slot. \return false: no hosts are started any more
    asio::awaitable<bool> take(const StartEvents& events) {
        if (events.is_starting() && free_ > 0) {
            --free_;
            co_return true;
        }
        Turn turn(executor_, waiting_);
        while (!turn.has_come && events.is_starting()) co_await turn.timer.async_wait(use_tuple);
        if (turn.has_come && !events.is_starting()) give_back();
        co_return turn.has_come&& events.is_starting();
    }
    void give_back() {
        if (waiting_.empty()) {
            ++free_;
            return;
        }
        waiting_.front()->has_come = true;  // it is theirs, whoever else comes
        waiting_.front()->timer.cancel();
        waiting_.pop_front();
    }
    /// Those who wait look again whether hosts are still started.
    void look() {
        for (Turn* const turn : waiting_) turn->timer.cancel();
    }

private:
    /// Somebody's place in the line.
    struct Turn {
        Turn(const asio::any_io_executor& executor, std::deque<Turn*>& in_line)
            : timer(executor, Timer::time_point::max()), line(in_line) {
            line.push_back(this);
        }
        ~Turn() { std::erase(line, this); }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

        Timer timer;
        std::deque<Turn*>& line;
        bool has_come = false;
    };

    asio::any_io_executor executor_;
    unsigned free_;
    std::deque<Turn*> waiting_;
};

/// A slot that was taken; gives it back.
class LoginSlot {
public:
    explicit LoginSlot(LoginSlots& slots) : slots_(slots) {}
    ~LoginSlot() { slots_.give_back(); }
    LoginSlot(const LoginSlot&) = delete;
    LoginSlot& operator=(const LoginSlot&) = delete;

private:
    LoginSlots& slots_;
};

}  // namespace dtrun::head
