#pragma once

#include "base/fd.h"
#include "worker/client/connect/wait_context.h"

#include <sys/epoll.h>
#include <array>
#include <cstdint>
#include <span>

namespace dtrun::embedded {

/// What a step's server waits for: descriptors that it has named, moments, and other threads.
///
/// Thread: the server's; wake() by any, also while another one waits.
class StepPoll {
public:
    static constexpr std::uint64_t kListener = UINT64_MAX - 1;  ///< a name; peers have their ids

    StepPoll();
    bool is_ready() const { return poll_ && wake_; }  ///< false, with errno: out of descriptors

    /// \param events  EPOLLIN, EPOLLOUT; they replace what it was watched for. Until it is closed.
    void watch(int fd, std::uint64_t name, std::uint32_t events);
    /// Waits until something happens, or wake() has been called since the last time.
    /// \return what has happened to whom (data.u64 is the name), until the next wait()
    std::span<const epoll_event> wait(Moment until);
    void wake();

private:
    Fd poll_;
    Fd wake_;  ///< eventfd
    std::array<epoll_event, 64> events_{};
};

}  // namespace dtrun::embedded
