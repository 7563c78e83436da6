#pragma once

#include "base/clock.h"
#include "rendezvous/wire/rank_messages.h"

#include <vector>

namespace dtrun::ranks {

/// When an agent looks for torch below its ranks that waits at an address where nobody is, and what is to be told of
/// that: what two looks in a row have found, as one may come in the moment in which a store is about to be
/// there. Pure.
class NestedWatch {
public:
    /// Ranks start.
    void begin(Deadline now);
    /// Whether it is time for a look: each few seconds at first, and then more and more rarely.
    bool is_due(Deadline now) const { return now >= next_; }
    void found(const std::vector<RankWait>& waits, Deadline now);
    /// With how long they have waited.
    std::vector<RankWait> waits(Deadline now) const;

private:
    struct Found {
        RankWait wait;
        Deadline since{};
        bool again = false;  ///< by another look
    };
    std::vector<Found> found_;
    Deadline began_{};
    Deadline next_ = Deadline::max();
};

}  // namespace dtrun::ranks
