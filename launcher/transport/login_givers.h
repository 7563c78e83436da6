#pragma once

#include "base/numbered.h"

#include <map>
#include <vector>

namespace dtrun::transport {

/// Decides which relay logs in to a host behind it. Whether hosts can log in to each other is found out by a trial of one:
/// while that goes on, and where it fails, the head goes on by itself. Pure.
class LoginGivers {
public:
    static constexpr unsigned kAtOnce = 16;  ///< log-ins of a relay
    static constexpr unsigned kTrialsMax =
        3;  ///< each by another relay, before nobody is asked any more

    /// What has come of a log-in.
    enum class Outcome {
        well,
        failed,
        not_tried,  ///< the host is none for it
    };

    void add(HostId giver);   ///< it has joined
    void lost(HostId giver);  ///< and is asked nothing any more

    /// Relays that may log in to one more host now.
    std::vector<HostId> ready() const;
    bool is_ready(HostId giver) const;
    /// One of its places is taken. \param giver  that is ready
    void begin(HostId giver);
    void end(HostId giver, Outcome outcome);

private:
    struct Giver {
        unsigned going_on = 0;
        unsigned successes = 0, failures = 0;
    };

    enum class State { untried, trying, works, given_up } state_ = State::untried;
    std::map<HostId, Giver> givers_;
    unsigned trials_ = 0;  ///< that have failed
};

}  // namespace dtrun::transport
