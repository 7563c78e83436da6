#pragma once

#include <ucontext.h>
#include <exception>
#include <functional>

namespace dtrun::simulation {

/// A thread of a simulated program. It runs on a stack of its own until it pauses; one that is never
/// resumed is a killed one, whose stack and whatever is on it stay as they are.
///
/// Thread: all are in one.
class Fiber {
public:
    explicit Fiber(std::function<void()> run);
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    void resume();        ///< returns when it pauses or has ended; throws what `run` has thrown
    static void pause();  ///< of the one that runs
    static Fiber* running() { return running_; }
    bool ended() const { return ended_; }

private:
    static void begin();

    static inline Fiber* running_ = nullptr;
    std::function<void()> run_;
    void* stack_ = nullptr;
    ucontext_t own_{};
    ucontext_t resumer_{};
    bool ended_ = false;
    std::exception_ptr failed_;
};

}  // namespace dtrun::simulation
