#pragma once

#include "base/loop/deadline.h"
#include "launcher/output/output_stream.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace dtrun::output {

/// What the sinks' threads have written, until their owner asks for it.
///
/// Thread: add() any, the rest the owner's.
class WriteCompletions {
public:
    enum class Sink : std::size_t { console, files, log };
    /// Of each sink.
    using Boxes = std::array<std::vector<Written>, 3>;

    /// \param wake  called by add(), at most once between two take(), until stop()
    explicit WriteCompletions(std::function<void()> wake) : wake_(std::move(wake)) {}

    /// Wakes the owner even if `written` is empty: a sink may have room, be idle, or have failed.
    void add(Sink sink, std::span<const Written> written) {
        {
            const std::lock_guard lock(mutex_);
            std::vector<Written>& box = boxes_[static_cast<std::size_t>(sink)];
            box.insert(box.end(), written.begin(), written.end());
            news_ = true;
        }
        changed_.notify_one();
        if (woken_.exchange(true)) return;
        const std::lock_guard lock(wake_mutex_);
        if (wake_) wake_();
    }

    /// Nobody is woken any more once this has returned.
    void stop() {
        const std::lock_guard lock(wake_mutex_);
        wake_ = nullptr;
    }

    /// \param boxes  all empty; they receive what has come since the last call
    void take(Boxes& boxes) {
        woken_ = false;
        const std::lock_guard lock(mutex_);
        boxes.swap(boxes_);
    }

    /// Returns at the deadline, or once there was an add() since the last call.
    void wait(Deadline deadline) {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline, [this] { return news_; });
        news_ = false;
    }

private:
    std::mutex wake_mutex_;
    std::function<void()> wake_;  // guarded by wake_mutex_
    std::atomic<bool> woken_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    Boxes boxes_;        // guarded by mutex_
    bool news_ = false;  // guarded by mutex_
};

}  // namespace dtrun::output
