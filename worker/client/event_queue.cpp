#include "worker/client/event_queue.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dtrun::embedded {
namespace {

void control(const Fd& poll, int operation, int fd) {
    epoll_event readable{.events = EPOLLIN, .data = {}};
    ::epoll_ctl(poll.get(), operation, fd, &readable);
}

}  // namespace

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
    Fd poll(::epoll_create1(EPOLL_CLOEXEC));
    if (!signal || !poll) return failure(DTRUN_INTERNAL, "{}", strerror(errno));
    signal_ = std::move(signal);
    poll_ = std::move(poll);
    control(poll_, EPOLL_CTL_ADD, signal_.get());
    if (watched_ >= 0) control(poll_, EPOLL_CTL_ADD, watched_);
    show();
    return poll_.get();
}

void EventQueue::watch(int socket) {
    watched_ = socket;
    if (poll_) control(poll_, EPOLL_CTL_ADD, socket);
}

void EventQueue::unwatch() {
    const int socket = std::exchange(watched_, -1);
    if (poll_ && socket >= 0) control(poll_, EPOLL_CTL_DEL, socket);
}

/// Makes signal_ readable while there is something to take or to learn.
void EventQueue::show() {
    if (!signal_) return;
    eventfd_t value = 0;
    (void)::eventfd_read(signal_.get(), &value);
    if (!events_.empty() || closed_) (void)::eventfd_write(signal_.get(), 1);
}

}  // namespace dtrun::embedded
