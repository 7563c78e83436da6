#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

#include <cstdint>

namespace dtrun::collectives {

/// Rounds to nearest and keeps denormal numbers while it lives, whatever the program has chosen for
/// this thread: ranks have to agree about every bit, and some libraries change these when they are
/// loaded. Where they are as they should be, which is nearly always, it only looks.
class DefaultArithmetic {
public:
    DefaultArithmetic(const DefaultArithmetic&) = delete;
    DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;
#if defined(__x86_64__)
    DefaultArithmetic() : before_(_mm_getcsr()) {
        if ((before_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
    }
    ~DefaultArithmetic() {
        if ((before_ & ~kFlags) != kDefault) _mm_setcsr(before_);
    }

private:
    static constexpr unsigned kDefault = 0x1f80;  ///< no exceptions, round to nearest
    static constexpr unsigned kFlags = 0x3f;      ///< exceptions that have happened
    const unsigned before_;
#elif defined(__aarch64__)
    DefaultArithmetic() : before_(control()) {
        if (before_ != kDefault) set_control(kDefault);
    }
    ~DefaultArithmetic() {
        if (before_ != kDefault) set_control(before_);
    }

private:
    static constexpr std::uint64_t kDefault = 0;  ///< of FPCR; what has happened is in FPSR
    static std::uint64_t control() {
        std::uint64_t value = 0;
        __asm__ volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
        return value;
    }
    static void set_control(std::uint64_t value) {
        __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory");
    }
    const std::uint64_t before_;
#else
    DefaultArithmetic() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultArithmetic() {
        std::fesetenv(&before_);
    }

private:
    std::fenv_t before_;
#endif
};

}  // namespace dtrun::collectives
