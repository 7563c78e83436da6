#pragma once

#include "base/result.h"
#include "collectives/communicator/communicator.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

struct dtrun_comm;

namespace dtrun::collectives {

/// Distinguishes the process that made an object from a forked child, which has neither its threads
/// nor its connections.
class Owner {
public:
    Owner() : forks_(forks) {
        static std::once_flag once;
        std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { ++forks; }); });
    }
    bool is_this_process() const { return forks_ == forks; }

private:
    /// How many forks there are between this process and the one that loaded the library.
    static inline std::atomic<unsigned> forks = 0;

    unsigned forks_;
};

/// The stream of the GPU in which each thread works on the arrays that it gives to one communicator:
/// what dtrun_comm_set_stream() has told. Threads of frameworks have streams of their own, so one
/// thread's choice is none of another's.
class CallerStream {
public:
    ~CallerStream() { set(nullptr); }

    void set(void* stream) const {
        const auto found = std::ranges::find(chosen_, number_, &Choice::first);
        if (found != chosen_.end()) chosen_.erase(found);
        if (stream != nullptr) chosen_.emplace_back(number_, stream);
    }
    /// nullptr: the legacy default stream
    void* get() const {
        const auto found = std::ranges::find(chosen_, number_, &Choice::first);
        return found == chosen_.end() ? nullptr : found->second;
    }

private:
    using Choice = std::pair<std::uint64_t, void*>;
    static inline thread_local std::vector<Choice> chosen_;
    static inline std::atomic<std::uint64_t> last_number_ = 0;

    const std::uint64_t number_ = ++last_number_;  ///< addresses of communicators are used again
};

class Inside;
class ReleasedLock;

/// What the calling thread is in. An operation looks it up once, which in a shared library is a call of the loader's.
struct ThreadState {
    Inside* inside = nullptr;          ///< the innermost operation
    ReleasedLock* released = nullptr;  ///< what that has given back of an interpreter
};
inline constinit thread_local ThreadState thread_state;

/// The lock of the caller's interpreter, which other threads have while an operation waits.
struct InterpreterLock {
    void* (*unlock)(void) = nullptr;
    void (*lock)(void* state) = nullptr;
    int (*interrupted)(void) = nullptr;

    /// Asks the interpreter of the calling thread, if that is in an operation.
    static bool is_interrupted();
};

/// The lock of an interpreter, which this thread does without while it lives.
class ReleasedLock {
public:
    /// \param thread  the calling one
    ReleasedLock(const InterpreterLock& lock, ThreadState& thread)
        : lock_(lock), thread_(thread), outer_(thread.released) {
        if (lock_.unlock == nullptr || lock_.lock == nullptr) return;
        state_ = lock_.unlock();
        thread_.released = this;
    }
    ~ReleasedLock() {
        if (thread_.released != this) return;
        thread_.released = outer_;
        lock_.lock(state_);
    }
    ReleasedLock(const ReleasedLock&) = delete;
    ReleasedLock& operator=(const ReleasedLock&) = delete;

    /// Signals are the main thread's to handle. Others do not ask: an interpreter that ends would end them.
    bool ask() {
        if (lock_.interrupted == nullptr || ::syscall(SYS_gettid) != ::getpid()) return false;
        lock_.lock(state_);
        const bool is = lock_.interrupted() != 0;
        state_ = lock_.unlock();
        return is;
    }

private:
    const InterpreterLock& lock_;
    ThreadState& thread_;
    ReleasedLock* const outer_;
    void* state_ = nullptr;
};

inline bool InterpreterLock::is_interrupted() {
    ReleasedLock* const released = thread_state.released;
    return released != nullptr && released->ask();
}

/// From now on no thread that calls operations of the communicator has a lock of an interpreter.
void forget_interpreter(dtrun_comm* comm);

}  // namespace dtrun::collectives

/// What the C interface's handles point to.
struct dtrun_comm {
    std::unique_ptr<dtrun::collectives::Communicator> communicator;
    dtrun::collectives::InterpreterLock lock;
    dtrun::collectives::Owner owner;
    dtrun::collectives::CallerStream stream;
};

struct dtrun_request {
    explicit dtrun_request(const dtrun_comm* comm) : of(comm) {}
    const dtrun_comm* const of;  ///< may be freed; only for comparisons
    dtrun::collectives::Owner owner;
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<dtrun::Result<void>> result;
};

namespace dtrun::collectives {

/// Says that this thread is in an operation, as long as it lives. From inside, the callback `interrupted` may
/// call the library: a signal handler, or a destructor that the interpreter runs there. What would wait for
/// the end of this very operation must not.
class Inside {
public:
    /// \param thread  the calling one
    Inside(dtrun_comm* comm, ThreadState& thread)
        : comm_(comm), thread_(thread), outer_(thread.inside) {
        thread_.inside = this;
    }
    ~Inside() {
        thread_.inside = outer_;
        if (freed_) delete comm_;
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

    /// The operation of this communicator that the calling thread is in, or nullptr.
    static Inside* of(const dtrun_comm* comm, const ThreadState& thread = thread_state) {
        Inside* one = thread.inside;
        while (one != nullptr && one->comm_ != comm) one = one->outer_;
        return one;
    }
    /// Frees the communicator when the operation returns.
    void free_later() { freed_ = true; }

private:
    dtrun_comm* const comm_;
    ThreadState& thread_;
    Inside* const outer_;
    bool freed_ = false;
};

}  // namespace dtrun::collectives
