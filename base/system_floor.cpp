#include "base/system_floor.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace dtrun {
namespace {

std::string this_kernel() {
    utsname own{};
    ::uname(&own);
    return fmt::format("this is {} {}", own.sysname, own.release);
}

/// Whether a container refuses a call which a new glibc then takes for its kernel's last word: threads cannot be made.
/// Older ones, and musl, make them by another call. Which one runs is known only when one is made.
bool refuses_threads() {
#ifdef SYS_clone3
    // Without arguments it is invalid where it is allowed, and no thread has to be tried.
    if (::syscall(SYS_clone3, nullptr, 0) == 0 || errno != EPERM) return false;
    pthread_t thread{};
    if (::pthread_create(
            &thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr) == EPERM)
        return true;
    ::pthread_join(thread, nullptr);
#endif
    return false;
}

}  // namespace

std::optional<std::string> lacking_in_system() {
    char byte = 0;
    if (::getrandom(&byte, sizeof byte, GRND_NONBLOCK) < 0 && errno != EAGAIN && errno != EINTR) {
        if (errno == ENOSYS)
            return fmt::format("Linux 3.17 or newer is needed, which has getrandom: {}",
                               this_kernel());
        return fmt::format(
            "the system call getrandom is refused here ({}): a container's seccomp profile has to "
            "allow it; {}",
            std::strerror(errno), this_kernel());
    }
    if (refuses_threads())
        return "the system call clone3 is refused here, so that no thread can be made: the "
               "container's runtime is older than the C library in it (Docker 20.10.10 or newer, "
               "or another seccomp profile)";
    return std::nullopt;
}

}  // namespace dtrun
