#include "worker/client/step/poll.h"

#include "base/threads.h"

#include <sys/eventfd.h>
#include <algorithm>

namespace dtrun::embedded {
namespace {

constexpr std::uint64_t kWake = UINT64_MAX;

}  // namespace

StepPoll::StepPoll()
    : poll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (is_ready()) watch(wake_.get(), kWake, EPOLLIN);
}

void StepPoll::watch(int fd, std::uint64_t name, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = name;
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
        ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event);
}

std::span<const epoll_event> StepPoll::wait(Moment until) {
    const int count = ::epoll_wait(poll_.get(), events_.data(), static_cast<int>(events_.size()),
                                   poll_timeout(until));
    const auto end = events_.begin() + std::max(count, 0);
    const auto others = std::remove_if(
        events_.begin(), end, [](const epoll_event& event) { return event.data.u64 == kWake; });
    if (others != end) {
        eventfd_t value = 0;
        (void)::eventfd_read(wake_.get(), &value);
    }
    return {events_.begin(), others};
}

void StepPoll::wake() {
    ::eventfd_write(wake_.get(), 1);
}

}  // namespace dtrun::embedded
