#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace dtrun::collectives {

/// Does one thing after the other, in the order in which they were asked for: what goes on behind
/// the caller's back in a thread of its own, the rest in the caller's. The thread is started by the
/// first that goes on behind.
class WorkQueue {
public:
    using Work = std::function<void()>;
    class Turn;

    WorkQueue() = default;
    ~WorkQueue();  ///< when all is done
    WorkQueue(const WorkQueue&) = delete;
    WorkQueue& operator=(const WorkQueue&) = delete;

    void start(Work work);
    /// Returns when all that was asked for before is done. While the Turn lives nothing else is done.
    [[nodiscard]] Turn wait_for_turn();

private:
    struct Started {
        std::uint64_t ticket;
        Work work;
    };
    void serve();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t next_ticket_ = 0;
    std::uint64_t turn_ = 0;  ///< the ticket that may work
    std::deque<Started> started_;
    bool stopping_ = false;
    std::thread thread_;
};

/// Lets the next one in, whatever happens.
class WorkQueue::Turn {
public:
    explicit Turn(WorkQueue& queue) : queue_(queue) {}
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

private:
    WorkQueue& queue_;
};

}  // namespace dtrun::collectives
