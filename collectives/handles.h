#pragma once

#include "base/result.h"
#include "collectives/caller_stream.h"
#include "collectives/communicator.h"
#include "collectives/interpreter_lock.h"

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
    dtrun::collectives::Owner owner;
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<dtrun::Result<void>> result;
};
