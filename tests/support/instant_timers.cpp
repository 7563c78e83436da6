// For test programs that simulate time: Asio looks for timers that are due at every turn of its loop, and asks
// the system for nothing. It would otherwise set a timer of the system's to "at once" each time, as only the
// simulation knows when a timer is due; that was half of all that a simulation did.

#include <sys/eventfd.h>
#include <sys/timerfd.h>

extern "C" {

/// A descriptor that is readable whenever it is looked at.
__attribute__((visibility("default"))) int timerfd_create(clockid_t, int) noexcept {
    return ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
}

__attribute__((visibility("default"))) int timerfd_settime(int, int, const itimerspec*,
                                                           itimerspec*) noexcept {
    return 0;
}

}  // extern "C"
