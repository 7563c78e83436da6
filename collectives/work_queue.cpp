#include "collectives/work_queue.h"

#include "collectives/quiet_thread.h"

#include <chrono>
#include <utility>

namespace dtrun::collectives {

/// With mutex_ held.
std::uint64_t WorkQueue::take_ticket() {
    if (state_.exchange(State::busy) == State::held) held_ = true;
    return next_ticket_++;
}

void WorkQueue::give_back(bool ticket) {
    State held = State::held;
    if (!ticket && state_.compare_exchange_strong(held, State::idle)) return;
    const std::lock_guard lock(mutex_);
    if (ticket)
        ++turn_;
    else
        held_ = false;
    if (turn_ == next_ticket_) state_ = State::idle;
    changed_.notify_all();
}

WorkQueue::~WorkQueue() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void WorkQueue::start(Work work) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = quiet_thread([this] { serve(); });
    started_.push_back({take_ticket(), std::move(work)});
    changed_.notify_all();
}

WorkQueue::Turn WorkQueue::wait_for_turn() {
    return wait_for_turn([] {});
}

WorkQueue::Turn WorkQueue::wait_behind_others(const std::function<void()>& meanwhile) {
    constexpr std::chrono::milliseconds kAsk{100};
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = take_ticket();
    while (!changed_.wait_for(lock, kAsk, [&] { return may_work(ticket); })) {
        lock.unlock();
        meanwhile();
        lock.lock();
    }
    return Turn(*this, true);
}

void WorkQueue::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] {
            return started_.empty() ? stopping_ : may_work(started_.front().ticket);
        });
        if (started_.empty()) return;
        const Work work = std::move(started_.front().work);
        started_.pop_front();
        lock.unlock();
        {
            const Turn turn(*this, true);
            work();
        }
        lock.lock();
    }
}

}  // namespace dtrun::collectives
