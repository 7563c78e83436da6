#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/wire/exchange_messages.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::agent {

/// Parts of the ranks' programs that may only take so long: who is in which, until when. Pure.
class HangDetector {
public:
    /// A section that takes longer than its limit; it is told once.
    struct Overdue {
        PeerId peer{};
        std::string name;
        std::chrono::milliseconds limit{0};
    };
    static constexpr std::size_t kOfPeerMax = 64;

    /// Errc: invalid_input
    Result<void> says(PeerId peer, const Section& section, Deadline now);
    void left(PeerId peer);
    void clear() { open_.clear(); }
    Deadline next_deadline() const;
    std::vector<Overdue> take_overdue(Deadline now);

private:
    struct Open {
        std::chrono::milliseconds limit{0};
        Deadline until{};
        bool told = false;
    };
    std::map<std::pair<PeerId, std::string>, Open> open_;
};

}  // namespace dtrun::agent
