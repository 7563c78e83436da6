#include "base/loop/task_group.h"

#include "base/log.h"

#include <cstdlib>

namespace dtrun {

struct TaskGroup::Task {
    asio::cancellation_signal cancel;
};

TaskGroup::TaskGroup(asio::any_io_executor executor)
    : executor_(std::move(executor)), empty_(executor_, Timer::time_point::max()) {}

TaskGroup::~TaskGroup() = default;

void TaskGroup::spawn(asio::awaitable<void> task) {
    const auto entry = tasks_.emplace(tasks_.end());
    auto done = [this, entry](std::exception_ptr error) { finished(entry, error); };
    asio::co_spawn(executor_, std::move(task),
                   asio::bind_cancellation_slot(entry->cancel.slot(), std::move(done)));
    if (stopping_) {
        // The coroutine starts from the executor's queue, so its cancellation must queue behind it.
        asio::post(executor_, [this] { stop(); });
    }
}

void TaskGroup::finished(std::list<Task>::iterator task, std::exception_ptr error) {
    // A cancellation emitted a moment ago may still be queued in the executor, and refers to the
    // task: the task is destroyed by a handler queued behind it.
    const auto ended = std::make_shared<std::list<Task>>();
    ended->splice(ended->begin(), tasks_, task);
    asio::post(executor_, [ended] {});
    if (tasks_.empty()) empty_.cancel();
    if (!error) return;
    try {
        std::rethrow_exception(error);
    } catch (const boost::system::system_error& thrown) {
        if (thrown.code() == asio::error::operation_aborted) return;
        log::error("internal error: {}", thrown.what());
    } catch (const std::exception& thrown) {
        log::error("internal error: {}", thrown.what());
    }
    std::abort();
}

void TaskGroup::stop() noexcept {
    stopping_ = true;
    for (auto task = tasks_.begin(); task != tasks_.end();) {
        const auto current = task++;  // a cancelled task may end at once and leave the list
        current->cancel.emit(asio::cancellation_type::terminal);
    }
}

asio::awaitable<void> TaskGroup::join() {
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    while (!tasks_.empty()) co_await empty_.async_wait(use_tuple);
}

}  // namespace dtrun
