#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/output_messages.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <vector>

namespace dtrun::ranks {

/// Moves what ranks print from their pipes to the head, without looking at it or copying it.
///
/// At most the head's window may be under way; when it is used up, or the socket is full, pipes are
/// left alone and fill, and the ranks wait in write(): nothing is ever lost, and nothing buffered
/// here. The last eighth of the window is for standard error: what explains a failure comes through
/// while nobody reads standard output. A stream that trickles is left to rest for a moment after a
/// small transfer, unwatched, so that a rank that flushes every line costs neither a frame nor a wake-up
/// for every line. The faster a stream is, the shorter it rests: its pipe must not fill meanwhile.
///
/// Thread: the executor's, which must not run any more when the pump is destroyed.
/// Lifetime: the link outlives it.
class OutputPump {
public:
    /// \param ended  called when a stream has reached its end and everything of it was sent
    OutputPump(asio::any_io_executor executor, Link& link, std::uint32_t window_bytes,
               std::function<void(SlotIndex place, Stream)> ended);

    void add(SlotIndex place, Stream stream, Fd pipe);
    void credit(std::uint64_t bytes);
    /// Looks at every resting stream now: a rank has ended.
    void hurry();
    bool all_ended() const { return sources_.empty(); }

private:
    struct Source {
        Source(asio::any_io_executor executor, SlotIndex place_, Stream stream_, Fd pipe_);
        ~Source() {
            if (watcher.is_open()) watcher.release();
        }
        SlotIndex place;
        Stream stream;
        Fd pipe;
        std::chrono::microseconds rest;  ///< how long after a small transfer
        bool rested = false;             ///< since the last transfer
        Clock::time_point rests_until{};
        /// Holds `pipe` only while it is empty: each write to a watched pipe would wake us.
        asio::posix::stream_descriptor watcher;
    };
    using Handle = std::list<Source>::iterator;

    void watch(Handle source);
    std::size_t room_for(Handle source) const;
    void pump();
    void transfer(Handle source, std::size_t there, std::size_t room);
    void transferred(Handle source, std::size_t were_there);
    void rest(Handle source);
    void wait_for_resting();
    /// Looks again at those whose rest is over by `now`.
    void wake_resting(Clock::time_point now);

    asio::any_io_executor executor_;
    Link& link_;
    std::uint64_t window_;
    std::uint64_t reserve_;  ///< of it, for standard error
    std::function<void(SlotIndex, Stream)> ended_;
    std::list<Source> sources_;
    std::deque<Handle> ready_;  ///< readable
    std::deque<Handle> held_;   ///< the same, but there is no room for them before the next credit
    std::vector<Handle> resting_;  ///< emptied a moment ago, in no order
    Timer rest_timer_;
    bool pumping_ = false;
};

}  // namespace dtrun::ranks
