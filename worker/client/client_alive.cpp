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
    Lock lock = connection_.lock();
    Moment due = now() + kHeartbeatInterval;
    while (!stopping_ && !connection_.closed()) {
        if (!connection_.is_open()) {
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
    connection_.read_pending(lock);
    if (!connection_.is_open()) return;
    if (now() - heard_ > silence_max_) return connection_.cut("silence");
    Heartbeat heartbeat;
    if (progress_) heartbeat = {1, *progress_, progress_->step};
    lock.unlock();
    // A sending thread shows that we live; and a blocked send must not hide silence from us.
    connection_.send_if_idle(encode(heartbeat));
    lock.lock();
    connection_.find_reader();
}

/// Reconnects, and sends again what is under way; closes the client for good if it stays cut off
/// too long.
void Client::reconnect(Lock& lock) {
    const Patience patience{
        lost_since_ + std::chrono::milliseconds(surroundings_.daemon->timeout_ms), [this] {
            const Lock inner = connection_.lock();
            return stopping_;
        }};
    if (patience.over())
        return connection_.close(
            {DTRUN_CLOSED, "the daemon takes connections, but does not answer"});
    if (!answered_ && tick_.wait_for(lock, kMutePause) == std::cv_status::no_timeout) return;
    lock.unlock();
    Outcome<FrameSocket> socket = dial(patience, true);
    if (!socket) {
        lock.lock();
        return connection_.close({DTRUN_CLOSED, socket.error().text});
    }
    (void)connection_.open(std::move(*socket), [this](const FrameSocket& with) {
        std::vector<Bytes> first{opening_frame(with)};
        for (const Call* call : calls_)
            if (!call->done) first.push_back(call->frame);
        for (const FenceCall* call : fences_)
            if (!call->done) first.push_back(call->frame);
        return first;
    });
    lock.lock();
}

}  // namespace dtrun::embedded
