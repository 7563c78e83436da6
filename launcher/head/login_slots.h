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
        while (free_ == 0 && events.is_starting()) {
            Timer turn(executor_, Timer::time_point::max());
            const InLine in_line(waiting_, turn);
            co_await turn.async_wait(use_tuple);
        }
        if (!events.is_starting()) co_return false;
        --free_;
        co_return true;
    }
    void give_back() {
        ++free_;
        if (waiting_.empty()) return;
        waiting_.front()->cancel();
        waiting_.pop_front();
    }
    /// Those who wait look again whether hosts are still started.
    void look() {
        for (Timer* const turn : waiting_) turn->cancel();
    }

private:
    class InLine {
    public:
        InLine(std::deque<Timer*>& line, Timer& turn) : line_(line), turn_(&turn) {
            line_.push_back(turn_);
        }
        ~InLine() { std::erase(line_, turn_); }
        InLine(const InLine&) = delete;
        InLine& operator=(const InLine&) = delete;

    private:
        std::deque<Timer*>& line_;
        Timer* turn_;
    };

    asio::any_io_executor executor_;
    unsigned free_;
    std::deque<Timer*> waiting_;
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
