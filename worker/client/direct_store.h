#pragma once

#include "base/threads.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/request.h"
#include "worker/client/connect/frame_socket.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::embedded {

/// A connection to the store past the agent, where the root of the job's tree lets programs in. One thread at a time
/// asks over it, for what the store does at once, and waits for the answer. Nothing is sent again: when it ends, the
/// agent is asked as ever.
///
/// Thread: any may begin(), of which one has the turn until end(); offer() and close() may come meanwhile. A handler of a
/// signal that runs in the thread that has the turn finds it taken.
/// Lifetime: whoever has the turn ends it before it is destroyed.
class DirectStore {
public:
    /// A rank that has begun less often is not worth a connection: the head has few of them.
    static constexpr int kWorthIt = 16;

    DirectStore();

    /// How it is reached, as `welcome` says. What was said first stays.
    void offer(const Welcome& welcome);
    bool is_offered() const { return is_offered_.load(std::memory_order_acquire); }

    /// Takes the turn, and connects when enough was asked to be worth it.
    /// \return false: somebody has the turn, or it cannot be asked (now)
    bool begin(const WaitContext& context);
    void end() { is_taken_.store(false, std::memory_order_release); }

    // For who has the turn.

    RequestHeader next_header(Op op) { return {client_, ++last_id_, 0, op}; }
    /// Failures: timed_out, cancelled, closed; it has not got all then, so that nothing is done
    Outcome<void> send(std::string_view frame, const WaitContext& context);
    /// The answer to the last request; a view until the next call. Failures: timed_out, cancelled, closed
    Outcome<ReplyView> receive(const WaitContext& context);
    /// It is not to be used any more.
    void give_up();

    /// Ends what is under way, with `closed`; nobody gets the turn any more.
    void close();

private:
    bool connect(const WaitContext& context);
    Outcome<FrameSocket> dial(const WaitContext& context) const;
    Outcome<FrameView> next_frame(const WaitContext& context);

    const std::uint64_t client_;  ///< under which the store knows who asks here
    // What was offered; does not change.
    std::string socket_name_;
    StorePort port_;
    std::atomic<bool> is_offered_{false};
    std::atomic<bool> is_taken_{false};
    std::uint64_t last_id_ = 0;
    int begun_ = 0;  ///< times, until it is connected
    Mutex mutex_;    ///< of the next two
    FrameSocket socket_;
    bool is_closed_ = false;
};

}  // namespace dtrun::embedded
