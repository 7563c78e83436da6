#pragma once

#include "rendezvous/wire/rank_messages.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace dtrun::agent {

/// Says to the head which ranks wait for each other: when that has changed, and again as long as some have
/// not met, so that the head can tell a host where they still wait from one that is not heard. No sockets,
/// no clock.
class WaitReport {
public:
    void begin(std::uint64_t generation);

    /// \param waits     of this moment
    /// \param at_least  shorter ones are left out: ranks that meet wait all the time, but not long
    /// \return what to send; often nothing, as nobody waits or all is as before
    std::optional<Waits> request(std::vector<RankWait> waits, std::chrono::milliseconds at_least);

    static constexpr std::chrono::milliseconds kWorthTelling{1'000};

private:
    std::uint64_t generation_ = 0;
    std::vector<RankWait> said_;  ///< the last time
    bool is_anew_ =
        false;  ///< in this generation nothing was said, and in the last one something was
};

}  // namespace dtrun::agent
