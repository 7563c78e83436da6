#include "worker/client/keep_alive.h"

#include <utility>

namespace dtrun::embedded {
namespace {

/// The pause before the next connection to a daemon that took the last one and said nothing.
constexpr std::chrono::milliseconds kMutePause{500};

}  // namespace

KeepAlive::KeepAlive(ServerConnection& connection, const DaemonAddress& daemon,
                     const ClientCredentials& credentials, First first)
    : connection_(connection),
      daemon_(daemon),
      credentials_(credentials),
      first_(std::move(first)) {}

KeepAlive::~KeepAlive() {
    if (!thread_.joinable()) return;
    {
        const Lock lock = connection_.lock();
        stopping_ = true;
        tick_.notify_one();
    }
    thread_.join();
}

void KeepAlive::start(std::function<Bytes()> unsent) {
    {
        const Lock lock = connection_.lock();
        unsent_ = std::move(unsent);
        lost_since_ = now();
    }
    thread_ = Thread([this] { run(); });
}

void KeepAlive::send_soon() {
    asked_to_send_ = true;
    tick_.notify_one();
}

void KeepAlive::on_open() {
    heard_ = now();
    answered_ = false;
}

void KeepAlive::on_bytes() {
    heard_ = now();
    answered_ = true;
}

void KeepAlive::on_lost() {
    if (answered_) lost_since_ = now();
    tick_.notify_one();
}

void KeepAlive::on_closed() {
    tick_.notify_one();
}

/// A daemon that was given another timeout tells its clients, so that both ends mean the same.
void KeepAlive::on_heartbeat(const Heartbeat& heartbeat) {
    if (heartbeat.timeout_ms != 0) silence_max_ = std::chrono::milliseconds(heartbeat.timeout_ms);
}

void KeepAlive::on_refused() {
    answered_ = false;
}

void KeepAlive::run() {
    Lock lock = connection_.lock();
    Moment due = now() + kHeartbeatInterval;
    while (!stopping_ && !connection_.closed()) {
        if (!connection_.is_open()) {
            reconnect(lock);
            due = now() + kHeartbeatInterval;
            continue;
        }
        if (asked_to_send_) {
            send_unsent(lock);
            continue;
        }
        if (tick_.wait_until(lock, due) != std::cv_status::timeout) continue;
        const auto late = now() - due;
        if (late > kHeartbeatInterval) heard_ += late;  // it was us who were stopped
        due = now() + kHeartbeatInterval;
        beat(lock);
        if (std::exchange(is_unsent_, false)) asked_to_send_ = true;
    }
}

/// If the connection breaks meanwhile, the frames go over the next one. Where others are long in sending, it is tried
/// again after the next beat.
void KeepAlive::send_unsent(Lock& lock) {
    asked_to_send_ = false;
    lock.unlock();
    Bytes frames;
    const auto make = [this, &frames]() -> std::string_view { return frames = unsent_(); };
    const auto sent = connection_.send_next(make, WaitContext{now() + kHeartbeatInterval, {}});
    lock.lock();
    if (!sent) is_unsent_ = true;
}

void KeepAlive::beat(Lock& lock) {
    connection_.read_pending(lock);
    if (!connection_.is_open()) return;
    if (now() - heard_ > silence_max_) return connection_.cut("silence");
    Heartbeat heartbeat;
    if (progress_) heartbeat = {1, *progress_, progress_->step};
    lock.unlock();
    // A sending thread shows that we live; and a blocked send must not hide silence from us.
    connection_.send_if_idle(encode(heartbeat), now() + kHeartbeatInterval);
    lock.lock();
    connection_.find_reader();
}

/// Reconnects, and sends again what is under way; closes the connection for good if it stays cut off
/// too long.
void KeepAlive::reconnect(Lock& lock) {
    const WaitContext context{lost_since_ + std::chrono::milliseconds(daemon_.timeout_ms), [this] {
                                  const Lock inner = connection_.lock();
                                  return stopping_;
                              }};
    if (context.over())
        return connection_.close(
            {DTRUN_CLOSED, "the daemon takes connections, but does not answer"});
    if (!answered_ && tick_.wait_for(lock, kMutePause) == std::cv_status::no_timeout) return;
    lock.unlock();
    Outcome<FrameSocket> socket = dial_daemon(daemon_, credentials_, true, context);
    if (!socket) {
        lock.lock();
        return connection_.close({DTRUN_CLOSED, socket.error().text});
    }
    (void)connection_.open(std::move(*socket), first_);
    lock.lock();
}

}  // namespace dtrun::embedded
