#pragma once

#include "base/result.h"
#include "collectives/api/caller_stream.h"
#include "collectives/api/interpreter_lock.h"
#include "collectives/communicator/communicator.h"

#include <pthread.h>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

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
    explicit Inside(dtrun_comm* comm) : comm_(comm), outer_(innermost_) { innermost_ = this; }
    ~Inside() {
        innermost_ = outer_;
        if (freed_) delete comm_;
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

    /// The operation of this communicator that this thread is in, or nullptr.
    static Inside* of(const dtrun_comm* comm) {
        Inside* one = innermost_;
        while (one != nullptr && one->comm_ != comm) one = one->outer_;
        return one;
    }
    /// Frees the communicator when the operation returns.
    void free_later() { freed_ = true; }

private:
    dtrun_comm* const comm_;
    Inside* const outer_;
    bool freed_ = false;
    inline static thread_local Inside* innermost_ = nullptr;
};

}  // namespace dtrun::collectives
