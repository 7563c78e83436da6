#include "worker/client/connection.h"

#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kFinishTime{1};
/// A process that comes this late to the end of a wait stood still: it was stopped, or starved. What it
/// waits for may have come meanwhile, and it gets the time to read that.
constexpr std::chrono::milliseconds kStoodStill{500};
constexpr std::chrono::seconds kReadingTime{1};

}  // namespace

void Connection::Waiter::finish() {
    done = true;
    wake.notify_one();
}

Connection::Connection(Handler& handler, std::string end_text)
    : handler_(handler), end_text_(std::move(end_text)) {}

Outcome<void> Connection::wait(Lock& lock, Waiter& waiter, const Patience& asked) {
    Patience patience = asked;
    const bool has_begun_in_time = !patience.over();
    waiters_.push_back(&waiter);
    Outcome<void> outcome;
    while (!waiter.done && !closed_) {
        bool ask = false;
        if (open_ && !reading_) {
            ask = read_once(lock, patience.slice());
        } else if (!patience.over()) {
            const Moment until = patience.slice();
            ask = until != Moment::max()
                      ? waiter.wake.wait_until(lock, until) == std::cv_status::timeout
                      : (waiter.wake.wait(lock), false);
        }
        if (waiter.done || closed_) break;
        if (ask && patience.give_up) {
            lock.unlock();
            const bool stop = patience.give_up();
            lock.lock();
            if (stop && !waiter.done) outcome = failure(DTRUN_CANCELLED, "interrupted");
        }
        if (outcome && !waiter.done && patience.over()) {
            const bool stood_still = patience.deadline == asked.deadline && has_begun_in_time &&
                                     now() - asked.deadline > kStoodStill;
            if (stood_still)
                patience.deadline = now() + kReadingTime;
            else
                outcome = failure(DTRUN_TIMED_OUT, "timed out");
        }
        if (!outcome) break;
    }
    std::erase(waiters_, &waiter);
    find_reader();
    if (waiter.done) {
        if (waiter.failure) return std::unexpected(*waiter.failure);
        return {};
    }
    if (!outcome) return outcome;
    return std::unexpected(*closed_);
}

void Connection::changed() {
    for (Waiter* listener : listeners_) listener->finish();
}

void Connection::find_reader() {
    if (!reading_ && !waiters_.empty()) waiters_.front()->wake.notify_one();
}

void Connection::read_pending(Lock& lock) {
    if (!reading_) read_once(lock, now());
}

/// Reads what comes until then, and hands it out.
/// \return whether nothing came: a signal, or it is time
bool Connection::read_once(Lock& lock, Moment until) {
    reading_ = true;
    lock.unlock();
    const FrameSocket::Got got = socket_.receive(until);
    lock.lock();
    reading_ = false;
    if (got == FrameSocket::Got::bytes) {
        handler_.on_bytes();
        hand_out();
    } else if (got == FrameSocket::Got::end) {
        lose(end_text_);
    }
    return got == FrameSocket::Got::nothing || got == FrameSocket::Got::signal;
}

/// Hands out every whole frame that was read.
void Connection::hand_out() {
    for (;;) {
        const auto frame = socket_.next();
        if (frame && !*frame) return;
        const Result<void> taken =
            frame ? handler_.on_frame(**frame) : Result<void>(std::unexpected(frame.error()));
        if (taken) continue;
        return close({DTRUN_CLOSED, fmt::format("protocol: {}", taken.error().message)});
    }
}

void Connection::lose(std::string why) {
    if (!open_) return;
    open_ = false;
    if (!handler_.on_lost()) close({DTRUN_CLOSED, std::move(why)});
}

void Connection::cut(std::string why) {
    shut_down();
    if (!reading_) lose(std::move(why));
}

void Connection::close(Failure why) {
    if (closed_) return;
    closed_ = std::move(why);
    socket_.shut_down();
    for (Waiter* waiter : waiters_) waiter->wake.notify_one();
    handler_.on_closed();
}

Outcome<void> Connection::open(FrameSocket socket,
                               const std::function<std::vector<Bytes>(const FrameSocket&)>& first) {
    const std::lock_guard sending(send_mutex_);
    std::vector<Bytes> frames;
    {
        const Lock lock(mutex_);
        socket_ = std::move(socket);
        frames = first(socket_);
        open_ = true;
        handler_.on_open(socket_.fd());
        find_reader();
    }
    Outcome<void> all_sent;
    for (const Bytes& frame : frames) {
        const auto sent = socket_.send(frame);
        if (!sent && all_sent) all_sent = sent;
    }
    return all_sent;
}

void Connection::send(std::string_view frame) {
    send_next([frame] { return frame; });
}

void Connection::send_next(const std::function<std::string_view()>& make) {
    const std::lock_guard sending(send_mutex_);
    Lock lock(mutex_);
    const std::string_view frame = make();
    const bool open = open_;
    lock.unlock();
    if (open) (void)socket_.send(frame);
}

void Connection::send_if_idle(std::string_view frame) {
    const std::unique_lock sending(send_mutex_, std::try_to_lock);
    if (!sending || !socket_.can_send()) return;
    {
        const Lock lock(mutex_);
        if (!open_) return;
    }
    (void)socket_.send(frame);
}

void Connection::finish(const std::function<std::vector<Bytes>()>& last) {
    const std::lock_guard sending(send_mutex_);
    std::vector<Bytes> frames;
    {
        const Lock lock(mutex_);
        if (!open_) return;
        frames = last();
    }
    for (const Bytes& frame : frames)
        if (!socket_.send(frame)) return;
    // If we closed a connection with unread bytes, TCP would discard what the other side has not
    // read yet.
    Lock lock(mutex_);
    if (reading_) return;
    reading_ = true;
    lock.unlock();
    socket_.finish(now() + kFinishTime);
}

}  // namespace dtrun::embedded
