#include "rendezvous/exchange_messages.h"
#include "rendezvous/heartbeat.h"
#include "worker/client/client.h"

namespace dtrun::embedded {
namespace {

/// Before another try with a daemon that takes connections and then says nothing.
constexpr std::chrono::milliseconds kMutePause{500};

}  // namespace

/// The daemon's client's own thread: says that we live, notices when the daemon does not, and makes
/// a lost connection anew. It reads only when nobody else does, so that it never stands between a
/// caller and its answer.
void Client::keep_alive() {
    Lock lock(mutex_);
    Moment due = now() + kHeartbeatInterval;
    while (!stopping_ && !closed_) {
        if (!connected_) {
            reconnect(lock);
            due = now() + kHeartbeatInterval;
            continue;
        }
        if (tick_.wait_until(lock, due) != std::cv_status::timeout) continue;
        const auto late = now() - due;
        if (late > kHeartbeatInterval) heard_ += late;  // it was us who were stopped
        due = now() + kHeartbeatInterval;
        beat(lock);
    }
}

void Client::beat(Lock& lock) {
    if (!reading_) read_once(lock, now());
    if (!connected_) return;
    if (now() - heard_ > silence_max_) {
        socket_.shut_down();  // who reads finds the end
        if (!reading_) lose("silence");
        return;
    }
    Heartbeat heartbeat;
    if (progress_) heartbeat = {1, *progress_, progress_->step};
    lock.unlock();
    // A sending thread shows that we live; and a blocked send must not hide silence from us.
    if (std::unique_lock sending(send_mutex_, std::try_to_lock); sending && socket_.can_send())
        send_if_connected(encode(heartbeat));
    lock.lock();
    if (!reading_ && !waiters_.empty()) waiters_.front()->wake.notify_one();
}

/// Reconnects, and sends again what is under way; closes the client for good if it stays cut off
/// too long.
void Client::reconnect(Lock& lock) {
    const Patience patience{
        lost_since_ + std::chrono::milliseconds(surroundings_.daemon->timeout_ms), [this] {
            const Lock inner(mutex_);
            return stopping_;
        }};
    if (patience.over())
        return close({DTRUN_CLOSED, "the daemon takes connections, but does not answer"});
    if (!answered_ && tick_.wait_for(lock, kMutePause) == std::cv_status::no_timeout) return;
    lock.unlock();
    Outcome<FrameSocket> socket = dial(patience, true);
    if (!socket) {
        lock.lock();
        return close({DTRUN_CLOSED, socket.error().text});
    }
    const std::lock_guard sending(send_mutex_);
    lock.lock();
    socket_ = std::move(*socket);
    std::vector<Bytes> frames{opening_frame()};
    for (const Call* call : calls_)
        if (!call->done) frames.push_back(call->frame);
    for (const FenceCall* call : fences_)
        if (!call->done) frames.push_back(call->frame);
    heard_ = now();
    answered_ = false;
    set_connected(true);
    if (!waiters_.empty()) waiters_.front()->wake.notify_one();
    lock.unlock();
    for (const Bytes& frame : frames) (void)socket_.send(frame);
    lock.lock();
}

}  // namespace dtrun::embedded
