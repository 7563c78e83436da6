#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace dtrun::collectives {

/// The lock of the caller's interpreter, which other threads have while an operation waits.
struct InterpreterLock {
    void* (*unlock)(void) = nullptr;
    void (*lock)(void* state) = nullptr;
    int (*interrupted)(void) = nullptr;

    class Released;
    /// Asks the interpreter of the calling thread, if that is in an operation.
    static bool is_interrupted();
};

class InterpreterLock::Released {
public:
    explicit Released(const InterpreterLock& lock) : lock_(lock), outer_(here_) {
        if (lock_.unlock == nullptr || lock_.lock == nullptr) return;
        state_ = lock_.unlock();
        here_ = this;
    }
    ~Released() {
        if (here_ != this) return;
        here_ = outer_;
        lock_.lock(state_);
    }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;

    static Released* here() { return here_; }
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
    Released* outer_;
    void* state_ = nullptr;
    inline static thread_local Released* here_ =
        nullptr;  ///< of the operation that this thread is in
};

inline bool InterpreterLock::is_interrupted() {
    return Released::here() != nullptr && Released::here()->ask();
}

}  // namespace dtrun::collectives
