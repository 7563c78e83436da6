#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/rank_messages.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::agent {

/// For what ranks wait, as they have said themselves by a Stall. Pure.
class RankStalls {
public:
    static constexpr std::size_t kOfPeerMax = 64;

    /// Errc: invalid_input
    Result<void> says(PeerId peer, const Stall& stall, Deadline now);
    void left(PeerId peer);
    void clear() { since_.clear(); }
    /// Adds who waits now, and for how long.
    /// \param rank_of  nothing for one that is none's any more, which is left out
    void add_waits(std::vector<RankWait>& waits,
                   const std::function<std::optional<Rank>(PeerId)>& rank_of, Deadline now) const;

private:
    std::map<std::pair<PeerId, std::string>, Deadline> since_;  ///< by who waits, and for what
};

}  // namespace dtrun::agent
