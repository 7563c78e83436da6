#pragma once

#include "base/clock.h"
#include "base/simulated.h"

#include <poll.h>
#include <signal.h>
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

// Threads, and what they wait for: the standard library's and the system's, or a simulation's.

namespace dtrun {

class Mutex {
public:
    void lock() {
        if (SimulatedSystem::current == nullptr) return mutex_.lock();
        while (std::exchange(held_, true)) SimulatedSystem::current->wait_on(this, Deadline::max());
    }
    bool try_lock() {
        if (SimulatedSystem::current == nullptr) return mutex_.try_lock();
        return !std::exchange(held_, true);
    }
    void unlock() {
        if (SimulatedSystem::current == nullptr) return mutex_.unlock();
        held_ = false;
        SimulatedSystem::current->wake_one(this);
    }

private:
    friend class ConditionVariable;

    std::mutex mutex_;
    bool held_ = false;  ///< in a simulation
};

class ConditionVariable {
public:
    using Lock = std::unique_lock<Mutex>;

    void notify_one() {
        if (SimulatedSystem::current == nullptr) return condition_.notify_one();
        SimulatedSystem::current->wake_one(this);
    }
    void notify_all() {
        if (SimulatedSystem::current == nullptr) return condition_.notify_all();
        SimulatedSystem::current->wake_all(this);
    }
    void wait(Lock& lock) {
        if (SimulatedSystem::current != nullptr) return (void)wait_simulated(lock, Deadline::max());
        Inner inner(lock);
        condition_.wait(inner.lock);
    }
    std::cv_status wait_until(Lock& lock, Deadline until) {
        if (SimulatedSystem::current == nullptr) {
            Inner inner(lock);
            return condition_.wait_until(inner.lock, until);
        }
        return wait_simulated(lock, until) ? std::cv_status::no_timeout : std::cv_status::timeout;
    }
    std::cv_status wait_for(Lock& lock, std::chrono::nanoseconds span) {
        return wait_until(lock, after(span));
    }
    template <class Ready>
    void wait(Lock& lock, Ready ready) {
        while (!ready()) wait(lock);
    }
    /// \return ready()
    template <class Ready>
    bool wait_until(Lock& lock, Deadline until, Ready ready) {
        while (!ready())
            if (wait_until(lock, until) == std::cv_status::timeout) return ready();
        return true;
    }

private:
    /// A lock of the mutex within a locked Mutex.
    struct Inner {
        explicit Inner(Lock& outer) : lock(outer.mutex()->mutex_, std::adopt_lock) {}
        ~Inner() { lock.release(); }
        std::unique_lock<std::mutex> lock;
    };

    bool wait_simulated(Lock& lock, Deadline until) {
        lock.unlock();
        const bool woken = SimulatedSystem::current->wait_on(this, until);
        lock.lock();
        return woken;
    }

    std::condition_variable condition_;
};

/// A thread of our own in somebody's program, whose handlers of signals run in the program's threads.
class Thread {
public:
    Thread() = default;
    /// \throws std::system_error  the system has no thread now
    explicit Thread(std::function<void()> run) {
        if (SimulatedSystem::current != nullptr) {
            simulated_ = SimulatedSystem::current->start_thread(std::move(run));
            return;
        }
        sigset_t all, before;
        ::sigfillset(&all);
        for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
            ::sigdelset(&all, own_fault);
        ::pthread_sigmask(SIG_BLOCK, &all, &before);
        end_ = std::make_shared<End>();
        const auto unblock = [&before] { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); };
        try {
            thread_ = std::thread([run = std::move(run), end = end_]() mutable {
                run();
                run = nullptr;
                const std::lock_guard lock(end->mutex);
                end->has_come = true;
                end->changed.notify_all();
            });
        } catch (...) {
            unblock();
            throw;
        }
        unblock();
    }

    bool joinable() const { return simulated_ != nullptr || thread_.joinable(); }
    void join() {
        if (simulated_ == nullptr) return thread_.join();
        simulated_->join();
        simulated_.reset();
    }
    /// join(), but not for longer. In a simulation every thread ends.
    /// \return false: it is left behind, with what its function holds
    bool join_until(Deadline until) {
        if (end_) {
            std::unique_lock lock(end_->mutex);
            if (!end_->changed.wait_until(lock, until, [this] { return end_->has_come; })) {
                thread_.detach();
                return false;
            }
        }
        join();
        return true;
    }

private:
    struct End {
        std::mutex mutex;
        std::condition_variable changed;
        bool has_come = false;
    };

    std::thread thread_;
    std::shared_ptr<End> end_;
    std::unique_ptr<SimulatedSystem::Thread> simulated_;
};

/// For poll(): milliseconds until then, rounded up; -1: no limit.
inline int poll_timeout(Deadline until) {
    if (until == Deadline::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

/// poll() of one descriptor, or of none (-1). \return as poll(): < 0 with errno, as after a signal
inline int poll_until(int fd, short events, Deadline until) {
    if (SimulatedSystem::current != nullptr)
        return SimulatedSystem::current->poll(fd, events, until);
    pollfd entry{fd, events, 0};
    return ::poll(&entry, 1, poll_timeout(until));
}

}  // namespace dtrun
