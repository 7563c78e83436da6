#pragma once

#include "base/loop/asio.h"

#include <functional>
#include <list>
#include <memory>

namespace dtrun {

/// Owns coroutines: every one that was spawned ends before join() returns.
///
/// Thread: one, the executor's. Cancellation: stop() cancels what each coroutine is waiting for, and
/// those spawned later at once; a coroutine that ends because of it does so silently.
/// Lifetime: the owner awaits join() before it destroys the group.
class TaskGroup {
public:
    explicit TaskGroup(asio::any_io_executor executor);
    ~TaskGroup();
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;

    /// Starts `task`. An exception that leaves it is a bug and ends the process with its text,
    /// except the one that cancellation makes.
    void spawn(asio::awaitable<void> task);
    void stop() noexcept;  ///< idempotent
    bool stopping() const { return stopping_; }
    std::size_t size() const { return tasks_.size(); }
    asio::awaitable<void> join();

private:
    struct Task;
    void finished(std::list<Task>::iterator task, std::exception_ptr error);

    asio::any_io_executor executor_;
    std::list<Task> tasks_;
    Timer empty_;
    bool stopping_ = false;
};

}  // namespace dtrun
