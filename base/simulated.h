#pragma once

#include "base/clock.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

struct sockaddr;

namespace dtrun {

/// What tests/simulation does in place of the operating system, for code that blocks: threads, waits,
/// connections, random numbers, wall-clock time. Time itself is Clock's.
///
/// Thread: all that is simulated takes place in one.
class SimulatedSystem {
public:
    class Thread {
    public:
        virtual ~Thread() = default;
        virtual void join() = 0;
    };

    virtual ~SimulatedSystem() = default;

    virtual std::unique_ptr<Thread> start_thread(std::function<void()> run) = 0;
    /// Lets others run until wake(what), or until then. \return whether it was woken
    virtual bool wait_on(const void* what, Deadline until) = 0;
    virtual void wake_one(const void* what) = 0;
    virtual void wake_all(const void* what) = 0;
    /// As poll() of one descriptor, or of none (-1): > 0 when one of `events` is there, else 0.
    virtual int poll(int fd, short events, Deadline until) = 0;
    /// A connected socket, or -1 and errno.
    virtual int connect(const sockaddr& address) = 0;
    virtual void random_bytes(std::span<std::uint8_t> out) = 0;
    /// Time since 1970, which may be stepped.
    virtual std::chrono::nanoseconds wall_time() = 0;
    virtual std::uint64_t free_bytes(const std::string& directory) = 0;
    virtual void rename_file(const std::string& from, const std::string& to) = 0;
    [[noreturn]] virtual void exit_process(int status) = 0;

    static inline SimulatedSystem* current = nullptr;  ///< in every program
};

inline std::chrono::nanoseconds since_1970() {
    if (SimulatedSystem::current != nullptr) return SimulatedSystem::current->wall_time();
    return std::chrono::system_clock::now().time_since_epoch();
}

}  // namespace dtrun
