#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace dtrun::collectives {

/// Runs operations one after the other, in the order of the calls: asynchronous ones in a thread of
/// its own, which the first of them starts, and synchronous ones in the caller's thread.
class WorkQueue {
public:
    using Work = std::function<void()>;
    class Turn;

    WorkQueue() = default;
    ~WorkQueue();  ///< waits until all is done
    WorkQueue(const WorkQueue&) = delete;
    WorkQueue& operator=(const WorkQueue&) = delete;

    void start(Work work);
    /// Waits until all earlier operations are done. While the Turn lives, no other one runs.
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

/// A caller's turn; its destructor lets the next operation run.
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
