#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace dtrun::collectives {

/// Runs operations one after the other, in the order of the calls: asynchronous ones in a thread of
/// its own, which the first of them starts, and synchronous ones in the caller's thread.
///
/// A synchronous one that finds nothing under way costs one atomic operation to begin and one to end; as soon as
/// anybody has to wait, all take tickets, until nobody waits any more.
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
    /// \param meanwhile  void(); is called some ten times a second while others have their turn, and may start more
    template <class Meanwhile>
    [[nodiscard]] Turn wait_for_turn(Meanwhile meanwhile);

private:
    enum class State : std::uint32_t {
        idle,
        held,  ///< by a synchronous operation without a ticket
        busy,  ///< whoever comes takes a ticket
    };
    struct Started {
        std::uint64_t ticket;
        Work work;
    };
    bool begin_at_once();
    Turn wait_behind_others(const std::function<void()>& meanwhile);
    std::uint64_t take_ticket();
    bool may_work(std::uint64_t ticket) const { return turn_ == ticket && !held_; }
    void give_back(bool ticket);
    void serve();

    std::atomic<State> state_ = State::idle;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t next_ticket_ = 0;
    std::uint64_t turn_ = 0;  ///< the ticket that may work
    bool held_ = false;       ///< by an operation that began before there were tickets
    std::deque<Started> started_;
    bool stopping_ = false;
    std::thread thread_;
};

/// A caller's turn; its destructor lets the next operation run.
class WorkQueue::Turn {
public:
    Turn(WorkQueue& queue, bool ticket) : queue_(queue), ticket_(ticket) {}
    ~Turn() { queue_.give_back(ticket_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

private:
    WorkQueue& queue_;
    bool ticket_;
};

inline bool WorkQueue::begin_at_once() {
    State idle = State::idle;
    return state_.compare_exchange_strong(idle, State::held);
}

template <class Meanwhile>
WorkQueue::Turn WorkQueue::wait_for_turn(Meanwhile meanwhile) {
    if (begin_at_once()) return Turn(*this, false);
    return wait_behind_others(std::move(meanwhile));
}

}  // namespace dtrun::collectives
