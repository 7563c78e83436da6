#pragma once

#include "base/fd.h"
#include "rendezvous/wire/exchange_messages.h"
#include "worker/client/connect/outcome.h"

#include <cstdint>
#include <deque>

namespace dtrun::embedded {

/// Events that a rank has not taken yet, and the descriptor that its program may poll for them.
///
/// The descriptor is readable exactly while there is an event to take, when the queue is closed, or
/// when the watched connection is readable: no thread reads it while nobody waits, so that its next
/// frame may be an event.
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

private:
    void show();

    std::deque<RankEvent> events_;
    bool closed_ = false;
    int watched_ = -1;
    Fd poll_;    ///< epoll of the watched connection and of signal_
    Fd signal_;  ///< eventfd
};

}  // namespace dtrun::embedded
