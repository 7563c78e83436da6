#include "worker/client/event_queue.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dtrun::embedded {
void EventQueue::add(RankEvent event) {
    events_.push_back(std::move(event));
    show();
}

RankEvent EventQueue::take() {
    RankEvent event = std::move(events_.front());
    events_.pop_front();
    show();
    return event;
}

void EventQueue::begin(std::uint64_t generation) {
    std::erase_if(events_, [&](const RankEvent& event) {
        return event.kind == RankEvent::Kind::membership && event.generation <= generation;
    });
    show();
}

void EventQueue::close() {
    closed_ = true;
    show();
}

Outcome<int> EventQueue::fd() {
    if (poll_) return poll_.get();
    Fd signal(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    Fd poll(::epoll_create1(EPOLL_CLOEXEC));
    if (!signal || !timer || !poll) return failure(DTRUN_INTERNAL, "{}", strerror(errno));
    signal_ = std::move(signal);
    timer_ = std::move(timer);
    poll_ = std::move(poll);
    control(EPOLL_CTL_ADD, signal_.get());
    control(EPOLL_CTL_ADD, timer_.get());
    if (watched_ >= 0) control(EPOLL_CTL_ADD, watched_);
    show();
    show_limit();
    return poll_.get();
}

void EventQueue::control(int operation, int fd) const {
    if (!poll_) return;
    epoll_event wanted{.events = EPOLLIN, .data = {}};
    if (fd == watched_ && is_left_) wanted.events |= EPOLLOUT;
    ::epoll_ctl(poll_.get(), operation, fd, &wanted);
}

void EventQueue::watch(int socket) {
    watched_ = socket;
    is_left_ = false;
    control(EPOLL_CTL_ADD, socket);
}

void EventQueue::unwatch() {
    const int socket = std::exchange(watched_, -1);
    if (socket >= 0) control(EPOLL_CTL_DEL, socket);
}

void EventQueue::on_unsent(bool is_left) {
    is_left_ = is_left;
    if (watched_ >= 0) control(EPOLL_CTL_MOD, watched_);
}

void EventQueue::show_requests(bool is_finished, Moment limit) {
    if (std::exchange(is_finished_, is_finished) != is_finished) show();
    // An earlier limit stays until it has passed: requests come and go faster than clocks are set.
    if (limit >= limit_ && (limit_ == Moment::max() || now() < limit_)) return;
    limit_ = limit;
    show_limit();
}

/// Makes signal_ readable while there is something to take or to learn.
void EventQueue::show() {
    const bool wanted = !events_.empty() || is_finished_ || closed_;
    if (!signal_ || std::exchange(is_shown_, wanted) == wanted) return;
    eventfd_t value = 0;
    if (wanted)
        (void)::eventfd_write(signal_.get(), 1);
    else
        (void)::eventfd_read(signal_.get(), &value);
}

/// Makes timer_ readable from then on.
void EventQueue::show_limit() {
    if (!timer_) return;
    itimerspec at{};
    if (limit_ != Moment::max()) {
        const auto since = limit_.time_since_epoch();
        const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
        at.it_value = {seconds.count(), (since - seconds).count()};
    }
    (void)::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

}  // namespace dtrun::embedded
