#include "worker/client/server_connection.h"

#include <sys/eventfd.h>
#include <algorithm>
#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kFinishTime{1};
/// How long a new connection is given to take its first frames before others may use it.
constexpr std::chrono::seconds kFirstTime{1};
/// A process that comes this late to the end of a wait stood still: it was stopped, or starved. What it
/// waits for may have come meanwhile, and it gets the time to read that.
constexpr std::chrono::milliseconds kStoodStill{500};
constexpr std::chrono::seconds kReadingTime{1};
/// So much is sent before more comes.
constexpr std::size_t kMuch = 16u << 10;

}  // namespace

void ServerConnection::Waiter::finish() {
    done = true;
    wake.notify_one();
}

ServerConnection::ServerConnection(Handler& handler, std::string end_text)
    : handler_(handler), end_text_(std::move(end_text)) {}

Outcome<void> ServerConnection::wait(Lock& lock, Waiter& waiter, const WaitContext& asked) {
    WaitContext context = asked;
    const bool has_begun_in_time = !context.over();
    waiters_.push_back(&waiter);
    Outcome<void> outcome;
    while (!waiter.done && !closed_) {
        bool ask = false;
        if (open_ && !reading_) {
            const FrameSocket::Got got = read_once(lock, context.slice());
            ask = got == FrameSocket::Got::nothing || got == FrameSocket::Got::signal;
        } else if (is_left_to_us() && !context.over()) {
            sending_ = true;
            sender_ = &waiter;
            (void)send_unsent(lock, context.slice());
            sender_ = nullptr;
            ask = !unsent_.empty();
            end_sending();
        } else if (!context.over()) {
            const Moment until = context.slice();
            ask = until != Moment::max()
                      ? waiter.wake.wait_until(lock, until) == std::cv_status::timeout
                      : (waiter.wake.wait(lock), false);
        }
        if (waiter.done || closed_) break;
        if (ask && context.give_up) {
            lock.unlock();
            const bool stop = context.give_up();
            lock.lock();
            if (stop && !waiter.done) outcome = failure(DTRUN_CANCELLED, "interrupted");
        }
        if (outcome && !waiter.done && context.over()) {
            const bool stood_still = context.deadline == asked.deadline && has_begun_in_time &&
                                     now() - asked.deadline > kStoodStill;
            if (stood_still)
                context.deadline = now() + kReadingTime;
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

void ServerConnection::changed() {
    for (Waiter* listener : listeners_) listener->finish();
    wake_reader();
}

void ServerConnection::wake_reader() {
    if (reading_ && reader_has_bell_) (void)::eventfd_write(bell_.get(), 1);
}

void ServerConnection::find_reader() {
    if (reading_) return;
    const auto found =
        std::ranges::find_if(waiters_, [this](const Waiter* waiter) { return waiter != sender_; });
    if (found != waiters_.end()) (*found)->wake.notify_one();
}

bool ServerConnection::read_pending(Lock& lock) {
    return open_ && !reading_ && read_once(lock, now()) == FrameSocket::Got::bytes;
}

/// Reads what comes until then, and hands it out; and sends what is left.
FrameSocket::Got ServerConnection::read_once(Lock& lock, Moment until) {
    reading_ = true;
    reader_sends_ = !sending_ && !unsent_.empty();
    reader_has_bell_ = static_cast<bool>(bell_);
    const FrameSocket::Also also{reader_sends_, bell_.get()};
    lock.unlock();
    const FrameSocket::Got got = socket_.receive(until, also);
    lock.lock();
    reading_ = reader_sends_ = reader_has_bell_ = false;
    if (got == FrameSocket::Got::bytes) {
        handler_.on_bytes();
        hand_out();
    } else if (got == FrameSocket::Got::end) {
        lose(end_text_);
    }
    flush(lock);
    return got;
}

/// Hands out every whole frame that was read.
void ServerConnection::hand_out() {
    for (;;) {
        const auto frame = socket_.next();
        if (frame && !*frame) return;
        const Result<void> taken =
            frame ? handler_.on_frame(**frame) : Result<void>(std::unexpected(frame.error()));
        if (taken) continue;
        return close({DTRUN_CLOSED, fmt::format("protocol: {}", taken.error().message)});
    }
}

void ServerConnection::lose(std::string why) {
    if (!open_) return;
    open_ = false;
    unsent_.clear();
    shows_unsent_ = false;
    if (!handler_.on_lost()) close({DTRUN_CLOSED, std::move(why)});
}

void ServerConnection::cut(std::string why) {
    shut_down();
    if (!reading_) lose(std::move(why));
}

void ServerConnection::close(Failure why) {
    if (closed_) return;
    closed_ = std::move(why);
    socket_.shut_down();
    for (Waiter* waiter : waiters_) waiter->wake.notify_one();
    handler_.on_closed();
}

Outcome<void> ServerConnection::open(
    FrameSocket socket, const std::function<std::vector<Bytes>(const FrameSocket&)>& first) {
    Lock lock(mutex_);
    (void)begin_sending(lock, {});
    socket_ = std::move(socket);
    unsent_.clear();
    for (const Bytes& frame : first(socket_)) unsent_.add(frame);
    open_ = true;
    handler_.on_open(socket_.fd());
    find_reader();
    const bool is_whole = send_unsent(lock, now() + kFirstTime);
    end_sending();
    if (!is_whole) return failure(DTRUN_CLOSED, "the connection is broken");
    return {};
}

void ServerConnection::expect_others() {
    if (!bell_ && SimulatedSystem::current == nullptr)
        bell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void ServerConnection::queue(const std::shared_ptr<Bytes>& frame) {
    if (open_ && !closed_) unsent_.add(frame);
}

void ServerConnection::flush(Lock& lock) {
    if (sending_ || !open_ || unsent_.empty()) return;
    sending_ = true;
    (void)send_unsent(lock, now());
    end_sending();
}

void ServerConnection::flush_if_much(Lock& lock) {
    unsent_.bytes() >= kMuch ? flush(lock) : show_unsent();
}

/// Waits until nobody else sends, and what others have left has gone.
Outcome<void> ServerConnection::begin_sending(Lock& lock, const WaitContext& context) {
    for (;;) {
        const Moment until = context.slice();
        if (!sending_) {
            sending_ = true;
            (void)send_unsent(lock, until);
            if (unsent_.empty()) return {};
            end_sending();
        } else if (until == Moment::max()) {
            may_send_.wait(lock);
            continue;
        } else if (may_send_.wait_until(lock, until) == std::cv_status::no_timeout) {
            continue;
        }
        bool stop = false;
        if (context.give_up) {
            lock.unlock();
            stop = context.give_up();
            lock.lock();
        }
        if (!stop && !context.over()) continue;
        if (!sending_) may_send_.notify_one();  // it may have been us who was woken
        if (stop) return failure(DTRUN_CANCELLED, "interrupted");
        return failure(DTRUN_TIMED_OUT, "timed out");
    }
}

/// Sends until then; for who has begun to send. A connection that is broken, which the thread that reads
/// notices, takes all. \return whether it is not broken
bool ServerConnection::send_unsent(Lock& lock, Moment until) {
    while (open_ && !unsent_.empty()) {
        UnsentFrames::Piece piece = unsent_.take();
        std::string_view rest = piece.rest();
        lock.unlock();
        const auto sent = socket_.send_some(rest, until);
        lock.lock();
        piece.sent = piece.bytes->size() - rest.size();
        if (!sent) unsent_.clear();
        if (!sent || !open_) return sent.has_value();
        if (rest.empty()) continue;
        unsent_.give_back(std::move(piece));
        return true;
    }
    return true;
}

void ServerConnection::end_sending() {
    sending_ = false;
    may_send_.notify_one();
    show_unsent();
}

/// Tells those who could send what is left.
void ServerConnection::show_unsent() {
    const bool is_left = open_ && !sending_ && !unsent_.empty();
    if (std::exchange(shows_unsent_, is_left) != is_left) handler_.on_unsent(is_left);
    if (!is_left) return;
    if (reading_ && !reader_sends_) wake_reader();
    if (is_left_to_us())
        for (Waiter* waiter : waiters_) waiter->wake.notify_one();
}

/// Nobody else sends it: the thread that reads does not know of it, and cannot be woken.
bool ServerConnection::is_left_to_us() const {
    return open_ && reading_ && !reader_sends_ && !reader_has_bell_ && !sending_ &&
           !unsent_.empty();
}

Outcome<void> ServerConnection::send(std::string_view frame, const WaitContext& context) {
    return send_next([frame] { return frame; }, context);
}

Outcome<void> ServerConnection::send_next(const std::function<std::string_view()>& make,
                                          const WaitContext& context) {
    Lock lock(mutex_);
    if (auto begun = begin_sending(lock, context); !begun) return begun;
    const std::string_view frame = make();
    if (open_) unsent_.add(frame);
    (void)send_unsent(lock, context.slice());
    const bool all = unsent_.empty();
    end_sending();
    if (all) return {};
    auto gone = begin_sending(lock, context);
    if (gone) end_sending();
    return gone;
}

void ServerConnection::send_if_idle(std::string_view frame, Moment until) {
    Lock lock(mutex_);
    if (sending_ || !open_) return;
    sending_ = true;
    (void)send_unsent(lock, until);
    if (open_ && unsent_.empty() && socket_.can_send()) {
        unsent_.add(frame);
        (void)send_unsent(lock, now());
    }
    end_sending();
}

void ServerConnection::finish(const std::function<std::vector<Bytes>()>& last, std::string why) {
    Lock lock(mutex_);
    end_text_ = std::move(why);
    const WaitContext context{now() + kFinishTime, {}};
    if (!open_ || !begin_sending(lock, context)) return;
    for (const Bytes& frame : last()) unsent_.add(frame);
    const bool is_whole = send_unsent(lock, context.deadline) && unsent_.empty() && open_;
    end_sending();
    // If we closed a connection with unread bytes, TCP would discard what the other side has not
    // read yet.
    if (!is_whole || reading_) return;
    reading_ = true;
    lock.unlock();
    socket_.finish(now() + kFinishTime);
}

}  // namespace dtrun::embedded
