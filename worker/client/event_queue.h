#pragma once

#include "base/fd.h"
#include "rendezvous/wire/exchange_messages.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"

#include <cstdint>
#include <deque>

namespace dtrun::embedded {

/// Events that a rank has not taken yet, and the descriptor that its program may poll for them, and for
/// requests that it has submitted.
///
/// The descriptor is readable exactly while there is an event or a finished request to take, when the
/// queue is closed, when the time of a request is over, or when the watched connection is readable, or
/// takes what is left to be sent: no thread reads or sends while nobody waits.
///
/// Thread: guarded by its owner's lock. Lifetime: owns its descriptors, but not the watched one.
class EventQueue {
public:
    bool empty() const { return events_.empty(); }
    void add(RankEvent event);
    RankEvent take();  ///< requires !empty()
    /// Drops announcements of generations up to this one, which has begun.
    void begin(std::uint64_t generation);
    /// Ends the queue: fd() becomes readable, so that who polls it looks and learns why.
    void close();

    /// Made when it is first asked for, and then always the same. Failures: internal
    Outcome<int> fd();
    void watch(int socket);  ///< until unwatch(), before which it must not be closed
    void unwatch();
    void on_unsent(bool is_left);  ///< something is to be sent over the watched connection
    /// \param is_finished  a request is
    /// \param limit        when the first of the others has to be
    void show_requests(bool is_finished, Moment limit);

private:
    void show();
    void show_limit();
    void control(int operation, int fd) const;

    std::deque<RankEvent> events_;
    bool closed_ = false;
    bool is_finished_ = false;
    bool is_shown_ = false;  ///< signal_ is readable
    bool is_left_ = false;
    int watched_ = -1;
    Moment limit_ = Moment::max();
    Fd poll_;    ///< epoll of the watched connection and of the next two
    Fd signal_;  ///< eventfd
    Fd timer_;   ///< timerfd
};

}  // namespace dtrun::embedded
