#include "rendezvous/membership.h"

#include <cassert>

namespace dtrun {
namespace {

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

}  // namespace

Membership::Membership(JobPlan plan)
    : plan_(std::move(plan)), arrivals_(plan_.hosts.size()), gone_(plan_.hosts.size(), false) {}

Membership::Verdict Membership::join(Arrival arrival) {
    const std::uint32_t host = arrival.join.host;
    if (host >= arrivals_.size()) return Verdict::unknown;
    if (arrivals_[host] || gone_[host]) return Verdict::duplicate;
    arrivals_[host] = std::move(arrival);
    if (++joined_ < arrivals_.size()) return Verdict::accepted;
    ++generation_;
    return Verdict::complete;
}

bool Membership::lost(std::uint32_t host) {
    if (host >= arrivals_.size() || !arrivals_[host]) return false;
    arrivals_[host].reset();
    gone_[host] = true;
    --joined_;
    return true;
}

std::vector<std::uint32_t> Membership::missing() const {
    std::vector<std::uint32_t> hosts;
    for (std::uint32_t host = 0; host < arrivals_.size(); ++host)
        if (!arrivals_[host]) hosts.push_back(host);
    return hosts;
}

/// Rank 0's host, by an address that its peers can use: the one its connection came from; if that
/// never left the machine, the server's address that a host elsewhere has reached.
std::string Membership::master_address() const {
    const std::string& own = arrivals_.front()->peer_address;
    if (!is_loopback(own)) return own;
    for (const auto& arrival : arrivals_)
        if (!is_loopback(arrival->peer_address)) return arrival->server_address;
    return own;
}

std::vector<Assign> Membership::assignments() const {
    assert(generation_ > 0 && joined_ == arrivals_.size());
    const std::string master = master_address();
    std::vector<Assign> all;
    for (std::uint32_t host = 0; host < plan_.hosts.size(); ++host) {
        Assign& assign = all.emplace_back();
        assign.generation = generation_;
        assign.world_size = plan_.world_size;
        assign.node_rank = host;
        assign.node_count = static_cast<std::uint32_t>(plan_.hosts.size());
        assign.master_address = master;
        assign.master_port = arrivals_.front()->join.free_port;
        assign.ranks = plan_.hosts[host];
    }
    return all;
}

}  // namespace dtrun
