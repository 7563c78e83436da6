#pragma once

#include "base/clock.h"
#include "base/loop/waiting_news.h"
#include "base/result.h"
#include "launcher/plan/daemon_target.h"
#include "rendezvous/wire/gathering.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace dtrun::inspect {

/// "1 of 2 ranks are there; waiting for 1 more". \param needed  more than `ready`
std::string missing_text(std::uint32_t ready, std::uint32_t needed);

/// What the user of a member of a daemon's job is told while it waits: for the daemon itself, for the ranks of other hosts to
/// come or to end, or as a spare. Pure: events in, lines out.
class MemberNews {
public:
    /// \param target   outlives it
    /// \param by_hand  the daemon is one of the nodes that run the same command
    MemberNews(const plan::DaemonTarget& target, bool by_hand)
        : target_(target), by_hand_(by_hand) {}

    /// The daemon cannot be reached, and is tried until then.
    void daemon_away(Error why, Deadline until);
    void daemon_there();
    void daemon_says(const std::optional<Gathering>& gathering) { gathering_ = gathering; }
    /// A generation begins, with so many ranks on this host.
    void begins(std::uint32_t ranks) { ranks_ = live_ = ranks; }
    void pauses() { ranks_ = 0; }  ///< another one is coming
    void rank_ended() {
        if (live_ > 0) --live_;
    }

    /// What is to be told now; nothing: as before.
    std::optional<std::string> look(Deadline now);

private:
    std::string waiting_text(Deadline now) const;
    std::string away_text(Deadline now) const;
    std::string meeting_text() const;

    const plan::DaemonTarget& target_;
    bool by_hand_;
    bool was_there_ = false;
    std::optional<std::pair<Error, Deadline>> away_;
    std::optional<Gathering> gathering_;
    std::uint32_t ranks_ = 0, live_ = 0;  ///< of this host, in the generation
    WaitingNews news_;
};

}  // namespace dtrun::inspect
