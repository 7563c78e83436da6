#include "collectives/work_queue.h"

#include "collectives/quiet_thread.h"

#include <utility>

namespace dtrun::collectives {

WorkQueue::Turn::~Turn() {
    const std::lock_guard lock(queue_.mutex_);
    ++queue_.turn_;
    queue_.changed_.notify_all();
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
    started_.push_back({next_ticket_, std::move(work)});
    ++next_ticket_;
    changed_.notify_all();
}

WorkQueue::Turn WorkQueue::wait_for_turn() {
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = next_ticket_++;
    changed_.wait(lock, [&] { return turn_ == ticket; });
    return Turn(*this);
}

void WorkQueue::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] {
            return started_.empty() ? stopping_ : turn_ == started_.front().ticket;
        });
        if (started_.empty()) return;
        const Work work = std::move(started_.front().work);
        started_.pop_front();
        lock.unlock();
        {
            const Turn turn(*this);
            work();
        }
        lock.lock();
    }
}

}  // namespace dtrun::collectives
