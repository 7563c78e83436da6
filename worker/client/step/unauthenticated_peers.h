#pragma once

#include "rendezvous/exchange/exchange.h"
#include "worker/client/connect/wait_context.h"

#include <cstddef>
#include <map>
#include <optional>

namespace dtrun::embedded {

/// Connections of which nobody knows yet whose they are. Each has its time to prove itself; and for
/// one too many any of them is cut off. Were it the newest, strangers could keep our ranks out; were it the oldest, so
/// could our ranks each other, where more come at once than prove themselves in the meantime.
///
/// Thread: the server's.
class UnauthenticatedPeers {
public:
    static constexpr std::size_t kMax = 1'024;

    /// Each has a larger id than all before it, and all have the same time: the oldest is late first.
    void add(PeerId id, Moment due) { due_.emplace(id, due); }
    /// It has proved itself, or has gone; nothing if it is no stranger.
    void remove(PeerId id) { due_.erase(id); }

    /// Who has to go before another one may come, each time another.
    std::optional<PeerId> excess() const;
    std::optional<PeerId> late(Moment at) const;
    /// When the next one is late.
    Moment next() const { return due_.empty() ? Moment::max() : due_.begin()->second; }

private:
    std::map<PeerId, Moment> due_;
};

}  // namespace dtrun::embedded
