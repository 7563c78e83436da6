#include "tests/simulation/fiber.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <stdexcept>
#include <utility>

namespace dtrun::simulation {
namespace {

/// A switch between fibers costs AddressSanitizer time in proportion to it.
constexpr std::size_t kStackBytes = 256u << 10;

}  // namespace

Fiber::Fiber(std::function<void()> run) : run_(std::move(run)) {
    stack_ = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack_ == MAP_FAILED) throw std::runtime_error("no memory for a stack");
    ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);  // of one that was here before
    ::getcontext(&own_);
    own_.uc_stack.ss_sp = stack_;
    own_.uc_stack.ss_size = kStackBytes;
    own_.uc_link = nullptr;
    ::makecontext(&own_, begin, 0);
}

Fiber::~Fiber() {
    if (ended_) ::munmap(stack_, kStackBytes);
}

void Fiber::begin() {
    Fiber& self = *running_;
    try {
        self.run_();
    } catch (...) {
        self.failed_ = std::current_exception();
    }
    self.ended_ = true;
    pause();
}

void Fiber::resume() {
    Fiber* const before = std::exchange(running_, this);
    ::swapcontext(&resumer_, &own_);
    running_ = before;
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
}

void Fiber::pause() {
    Fiber& self = *running_;
    ::swapcontext(&self.own_, &self.resumer_);
}

}  // namespace dtrun::simulation
