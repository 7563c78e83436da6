#include "launcher/transport/login_givers.h"

namespace dtrun::transport {

void LoginGivers::add(HostId giver) {
    givers_.try_emplace(giver);
}

void LoginGivers::lost(HostId giver) {
    const auto found = givers_.find(giver);
    if (found == givers_.end()) return;
    if (state_ == State::trying && found->second.going_on > 0) state_ = State::untried;
    givers_.erase(found);
}

std::vector<HostId> LoginGivers::ready() const {
    std::vector<HostId> hosts;
    for (const auto& [host, giver] : givers_)
        if (is_ready(host)) hosts.push_back(host);
    return hosts;
}

/// A host that is down fails whoever tries it, so a relay that has succeeded may fail now and then.
bool LoginGivers::is_ready(HostId host) const {
    if (state_ == State::trying || state_ == State::given_up) return false;
    const auto found = givers_.find(host);
    if (found == givers_.end()) return false;
    const Giver& giver = found->second;
    const bool is_trusted = giver.failures <= giver.successes + (state_ == State::works ? 1 : 0);
    return is_trusted && giver.going_on < kAtOnce;
}

void LoginGivers::begin(HostId host) {
    ++givers_[host].going_on;
    if (state_ == State::untried) state_ = State::trying;
}

void LoginGivers::end(HostId host, Outcome outcome) {
    const auto found = givers_.find(host);
    const bool was_trial = state_ == State::trying;
    if (found == givers_.end()) return;  // lost meanwhile
    Giver& giver = found->second;
    --giver.going_on;
    if (outcome == Outcome::well) ++giver.successes;
    if (outcome == Outcome::failed) ++giver.failures;
    if (outcome == Outcome::well) state_ = State::works;
    if (!was_trial || outcome == Outcome::well) return;
    if (outcome == Outcome::failed) ++trials_;
    state_ = trials_ < kTrialsMax ? State::untried : State::given_up;
}

}  // namespace dtrun::transport
