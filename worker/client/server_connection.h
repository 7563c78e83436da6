#pragma once

#include "base/fd.h"
#include "base/threads.h"
#include "rendezvous/wire/frame.h"
#include "worker/client/connect/frame_socket.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/unsent_frames.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::embedded {

/// The connection of a Client: who of its threads reads, who waits, and who sends.
///
/// No thread is there to read. One of those that wait reads for all and hands each frame to the
/// handler, which finishes the waiter it is for; when it leaves, it wakes another one to take over.
/// A connection that was lost may be opened again; one that is closed stays so, and whoever waits
/// then learns why.
///
/// Frames are sent in their order. Who sends has the time that it is given, and who only queues a frame takes
/// none: what the other side does not take goes later, by whoever sends next, or waits, or polls.
///
/// Locks: lock() guards all that the handler and its waiters change, too, and is never held while a
/// thread waits or sends. One thread sends at a time, and one reads; the socket is replaced with the
/// lock held by the one that sends, while nobody reads, so it stays for either.
class ServerConnection {
public:
    using Lock = std::unique_lock<Mutex>;

    /// Somebody who waits. Guarded by lock().
    struct Waiter {
        ConditionVariable wake;
        bool done = false;
        std::optional<Failure> failure;

        void finish();
    };

    /// What is done with what comes. Called with the lock held, which is not to be let go.
    class Handler {
    public:
        virtual void on_open(int socket) = 0;
        virtual void on_bytes() = 0;  ///< a sign of life; frames follow
        /// Errc: any, which closes the connection
        virtual Result<void> on_frame(const FrameView& frame) = 0;
        /// Whether frames are left that somebody has to send.
        virtual void on_unsent(bool /*is_left*/) {}
        /// \return whether it will be opened again; if not, it is closed
        virtual bool on_lost() = 0;
        virtual void on_closed() = 0;

    protected:
        ~Handler() = default;
    };

    /// \param end_text  why it is closed when the other side ends it
    ServerConnection(Handler& handler, std::string end_text);
    ServerConnection(const ServerConnection&) = delete;
    ServerConnection& operator=(const ServerConnection&) = delete;

    Lock lock() const { return Lock(mutex_); }

    // With the lock held.

    bool is_open() const { return open_; }
    /// Why it is closed for good.
    const std::optional<Failure>& closed() const { return closed_; }
    /// Waits until `waiter` is done, or `asked` is over. Failures: the waiter's, timed_out, cancelled, why it is closed
    Outcome<void> wait(Lock& lock, Waiter& waiter, const WaitContext& asked);
    /// Waits until ready(), which is asked after each changed(). Failures: timed_out, cancelled, why
    /// it is closed
    template <class Ready>
    Outcome<void> wait_until(Lock& lock, Ready ready, const WaitContext& context);
    void changed();
    /// Descriptors that have come with what was read.
    std::vector<Fd> take_descriptors() { return socket_.take_descriptors(); }
    /// Reads what is there, unless somebody else reads. \return whether something was
    bool read_pending(Lock& lock);
    /// A frame is to be sent behind all others, by flush() or later. Without a connection it is forgotten.
    void queue(const std::shared_ptr<Bytes>& frame);
    /// Sends as much of what is queued as the other side takes at once. The lock is let go meanwhile.
    void flush(Lock& lock);
    /// The same, but what is little may wait for more.
    void flush_if_much(Lock& lock);
    /// From now on somebody who is not asked may have something to say to the thread that reads: it can be woken.
    void expect_others();
    /// Wakes somebody who waits, to read if nobody does.
    void find_reader();
    /// Ends the connection: who reads next finds the end.
    void shut_down() { socket_.shut_down(); }
    /// The same, and it is lost at once if nobody reads.
    void cut(std::string why);
    /// Calls that wait and all later ones fail with `why`.
    void close(Failure why);

    // Without the lock.

    /// Replaces one that is lost, or over which nobody reads yet.
    /// \param first  makes the first frames, with the lock held
    /// Failures: closed (the first frames were not sent; it is open nevertheless)
    Outcome<void> open(FrameSocket socket,
                       const std::function<std::vector<Bytes>(const FrameSocket&)>& first);
    /// Does nothing without a connection; that one is broken is noticed by the thread that reads.
    /// Failures: timed_out, cancelled (a part of it may be left to be sent later)
    Outcome<void> send(std::string_view frame, const WaitContext& context = {});
    /// The same for a frame that is made, with the lock held, when all before it have been sent. If
    /// make() also records the frame for another connection, each connection carries it once. When it
    /// fails make() may not have been called.
    Outcome<void> send_next(const std::function<std::string_view()>& make,
                            const WaitContext& context = {});
    /// Sends until then what others have left; then the frame, unless it would have to wait.
    void send_if_idle(std::string_view frame, Moment until);
    /// Sends the last frames, if it is open, and waits until the other side has read all and closed,
    /// for a second each at most.
    /// \param last  makes them, with the lock held
    /// \param why   what others who wait are told from now on when the other side closes
    void finish(const std::function<std::vector<Bytes>()>& last, std::string why);

private:
    Outcome<void> begin_sending(Lock& lock, const WaitContext& context);
    bool send_unsent(Lock& lock, Moment until);
    void end_sending();
    void show_unsent();
    bool is_left_to_us() const;
    FrameSocket::Got read_once(Lock& lock, Moment until);
    void wake_reader();
    void hand_out();
    void lose(std::string why);

    Handler& handler_;
    mutable Mutex mutex_;  ///< of everything below; never held while waiting or sending
    std::string end_text_;
    FrameSocket socket_;
    bool open_ = false;
    bool sending_ = false;        ///< somebody is in socket_.send_some(), or may be at once
    ConditionVariable may_send_;  ///< nobody is any more
    UnsentFrames unsent_;
    bool shows_unsent_ = false;     ///< the handler knows that something is left
    bool reading_ = false;          ///< somebody is in socket_.receive()
    bool reader_sends_ = false;     ///< and sends when the other side takes more
    Fd bell_;                       ///< eventfd, by which one can be woken; see expect_others()
    bool reader_has_bell_ = false;  ///< it has begun since there is one
    std::optional<Failure> closed_;
    std::vector<Waiter*> waiters_;    ///< in wait()
    const Waiter* sender_ = nullptr;  ///< of these, who sends: it hears of nothing meanwhile
    std::vector<Waiter*> listeners_;  ///< in wait_until()
};

template <class Ready>
Outcome<void> ServerConnection::wait_until(Lock& lock, Ready ready, const WaitContext& context) {
    while (!ready()) {
        Waiter waiter;
        listeners_.push_back(&waiter);
        const auto waited = wait(lock, waiter, context);
        std::erase(listeners_, &waiter);
        if (!waited && !ready()) return waited;
    }
    return {};
}

}  // namespace dtrun::embedded
