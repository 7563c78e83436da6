#include "worker/client/loss_hooks.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dtrun::embedded {
namespace {

void drain(int fd) {
    eventfd_t value = 0;
    (void)::eventfd_read(fd, &value);
}

}  // namespace

LossHooks::~LossHooks() {
    if (!thread_.joinable()) return;
    {
        const Lock lock(mutex_);
        stopping_ = true;
    }
    (void)::eventfd_write(wake_.get(), 1);
    thread_.join();
}

Outcome<std::uint64_t> LossHooks::add(std::function<void()> lost) {
    const Lock lock(mutex_);
    if (changes_.has_board() && !thread_.joinable()) {
        wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!wake_) return failure(DTRUN_INTERNAL, "{}", std::strerror(errno));
        thread_ = Thread([this] { run(); });
    }
    hooks_[++last_id_] = {std::move(lost), 0};
    if (thread_.joinable()) (void)::eventfd_write(wake_.get(), 1);
    return last_id_;
}

void LossHooks::remove(std::uint64_t id) {
    Lock lock(mutex_);
    hooks_.erase(id);
    while (running_ == id) returned_.wait(lock);
}

void LossHooks::run() {
    pollfd entries[] = {{changes_.bell(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    Lock lock(mutex_);
    while (!stopping_) {
        lock.unlock();
        ::poll(entries, 2, -1);
        for (const pollfd& entry : entries)
            if (entry.revents != 0) drain(entry.fd);
        lock.lock();
        call(lock);
    }
}

void LossHooks::call(Lock& lock) {
    const std::uint64_t generation = generation_();
    if (!changes_.is_over(generation)) return;
    for (auto hook = hooks_.begin(); hook != hooks_.end() && !stopping_;) {
        const std::uint64_t id = hook->first;
        if (std::exchange(hook->second.told, generation) != generation) {
            running_ = id;
            const std::function<void()> lost = hook->second.lost;
            lock.unlock();
            lost();
            lock.lock();
            running_ = 0;
            returned_.notify_one();
        }
        hook = hooks_.upper_bound(id);  // there may be others now
    }
}

}  // namespace dtrun::embedded
