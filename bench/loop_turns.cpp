// A library that is put under dtrun by LD_PRELOAD, for ./dev bench scale: it measures the turns of the event loop, each from
// a return of epoll_wait() to the next call. The file $LOOP_TURNS has them at all times, see Turns.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

/// Of a process, in a file that it maps; ns.
struct Turns {
    std::uint64_t turns = 0;
    std::uint64_t longest = 0;       ///< by the clock
    std::uint64_t longest_cpu = 0;   ///< of the thread's processor time
    std::uint64_t above_100_ms = 0;  ///< turns that took more than this of processor time
};

std::uint64_t now(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_nsec);
}

/// Null in programs that the one which is measured starts.
Turns* open_turns() {
    const char* const path = std::getenv("LOOP_TURNS");
    if (path == nullptr || std::strcmp(program_invocation_short_name, "dtrun") != 0) return nullptr;
    const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ::ftruncate(fd, sizeof(Turns)) != 0) return nullptr;
    void* const memory = ::mmap(nullptr, sizeof(Turns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<Turns*>(memory);
}

Turns* const turns = open_turns();

}  // namespace

extern "C" __attribute__((visibility("default"))) int epoll_wait(int epoll, epoll_event* events,
                                                                 int size, int timeout) {
    using Wait = int(int, epoll_event*, int, int);
    static Wait* const real = reinterpret_cast<Wait*>(::dlsym(RTLD_NEXT, "epoll_wait"));
    static std::uint64_t since = 0, since_cpu = 0;  // only the thread of the loop calls it
    if (turns != nullptr && since != 0) {
        const std::uint64_t took = now(CLOCK_MONOTONIC) - since;
        const std::uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID) - since_cpu;
        ++turns->turns;
        if (took > turns->longest) turns->longest = took;
        if (cpu > turns->longest_cpu) turns->longest_cpu = cpu;
        if (cpu > 100'000'000) ++turns->above_100_ms;
    }
    const int count = real(epoll, events, size, timeout);
    if (turns != nullptr) {
        since = now(CLOCK_MONOTONIC);
        since_cpu = now(CLOCK_THREAD_CPUTIME_ID);
    }
    return count;
}
