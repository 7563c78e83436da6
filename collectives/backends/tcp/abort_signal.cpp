#include "collectives/backends/tcp/abort_signal.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace dtrun::collectives::over_tcp {
namespace {

constexpr std::uint64_t kOwn = ~0ULL;

void add(int epoll, int fd, std::uint32_t events, std::uint64_t who) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = who;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

AbortSignal::AbortSignal()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), event_(::eventfd(0, EFD_CLOEXEC)) {
    add(epoll_.get(), event_.get(), EPOLLIN, kOwn);
}

void AbortSignal::watch(int fd, std::uint32_t peer) {
    add(epoll_.get(), fd, EPOLLPRI, peer);
}

void AbortSignal::raise() noexcept {
    ended_ = true;
    const std::uint64_t one = 1;
    static_cast<void>(!::write(event_.get(), &one, sizeof one));
}

std::optional<std::uint32_t> AbortSignal::caused_by() const {
    epoll_event events[2];
    const int number = ::epoll_wait(epoll_.get(), events, 2, 0);
    for (int i = 0; i < number; ++i)
        if (events[i].data.u64 != kOwn) return static_cast<std::uint32_t>(events[i].data.u64);
    return std::nullopt;
}

}  // namespace dtrun::collectives::over_tcp
