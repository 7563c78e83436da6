#pragma once

#include "base/result.h"
#include "collectives/work_queue.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace dtrun::collectives::native {

/// A call that goes on in another thread, one at a time.
///
/// Thread: one at a time.
class Background {
public:
    /// \throws std::exception  there is no memory, or no thread can be started: nothing was started then
    void start(std::function<Result<void>()> call) {
        queue_.start([this, call = std::move(call)] {
            Result<void> done;
            try {
                done = call();
            } catch (const std::exception& error) {
                done = fail(Errc::internal, "{}", error.what());
            }
            const std::lock_guard lock(mutex_);
            done_ = std::move(done);
            changed_.notify_all();
        });
        pending_ = true;
    }

    /// Whether a call was started that nobody has waited for.
    bool pending() const { return pending_; }

    /// Waits for what was started. \param interrupted  asked now and then: true ends the wait, not the call
    /// Errc: those of the call; cancelled (interrupted)
    Result<void> wait(const std::function<bool()>& interrupted) {
        constexpr std::chrono::milliseconds kAsk{100};
        std::unique_lock lock(mutex_);
        while (!changed_.wait_for(lock, kAsk, [this] { return done_.has_value(); }))
            if (interrupted && interrupted()) return fail(Errc::cancelled, "interrupted");
        pending_ = false;
        Result<void> done = std::move(*done_);
        done_.reset();
        return done;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Result<void>> done_;
    bool pending_ = false;
    WorkQueue queue_;  ///< its thread ends first
};

}  // namespace dtrun::collectives::native
