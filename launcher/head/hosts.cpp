#include "launcher/head/hosts.h"

#include "rendezvous/wire/message.h"
#include "rendezvous/wire/relayed.h"

#include <algorithm>

namespace dtrun::head {
namespace {

/// In an elastic job the loss of one host must not cut off others, so none relays.
std::uint32_t threshold_of(const plan::Options& options) {
    return options.elastic ? UINT32_MAX : static_cast<std::uint32_t>(options.tree_threshold);
}

}  // namespace

Hosts::Hosts(const plan::JobSpec& spec)
    : spec_(spec),
      tree_(static_cast<std::uint32_t>(spec.hosts.size()), threshold_of(spec.options)),
      states_(spec.hosts.size()),
      numbers_(spec.placement.ranks.size()) {}

void Hosts::grow() {
    while (states_.size() < spec_.hosts.size()) states_.emplace_back();
    numbers_.add_slots(spec_.placement.ranks.size());
}

std::optional<HostId> Hosts::twin_of(HostId host) const {
    const std::string& machine = states_[host].machine;
    if (machine.empty()) return std::nullopt;
    for (const HostId other : hosts())
        if (other != host && states_[other].session != nullptr && states_[other].machine == machine)
            return other;
    return std::nullopt;
}

bool Hosts::is_behind(const AgentSession& session, HostId host) const {
    return has(host) && states_[host].relayed && states_[host].session == &session;
}

std::optional<HostId> Hosts::named(const std::string& name) const {
    for (const HostId host : hosts())
        if (this->name(host) == name) return host;
    return std::nullopt;
}

std::optional<HostId> Hosts::at(const std::string& address) const {
    for (const HostId host : hosts())
        if (states_[host].address == address ||
            std::ranges::count(states_[host].addresses, address) > 0)
            return host;
    return std::nullopt;
}

Rank Hosts::rank_of(HostId host, std::int64_t pid) const {
    const auto found = states_[host].ranks.find(pid);
    if (found != states_[host].ranks.end()) return numbers_.of(found->second);
    const std::vector<plan::SlotId>& ranks = spec_.hosts[host].ranks;
    return ranks.size() == 1 ? numbers_.of(ranks.front()) : kNoRank;
}

std::optional<plan::SlotId> Hosts::planned_on(HostId host, SlotIndex place) const {
    const std::vector<plan::SlotId>& ranks = spec_.hosts[host].ranks;
    if (!is_below(place, ranks.size())) return std::nullopt;
    return ranks[std::to_underlying(place)];
}

std::string Hosts::name_of_host(Rank rank) const {
    const auto place = numbers_.slot_of(rank);
    return place ? spec_.host_of(*place) : "?";
}

void Hosts::send(HostId host, Bytes frame) {
    const HostState& state = states_[host];
    if (state.session == nullptr || state.done) return;
    Link& link = state.session->link();
    if (!state.relayed) return link.send(std::move(frame));
    std::string_view bytes(frame);
    const auto view = next_frame(bytes);
    link.send_soon(FrameType::relayed, encode_relayed(host, (*view)->type, (*view)->payload));
}

void Hosts::send_to_all(const Bytes& frame) {
    for (const HostId host : hosts()) send(host, frame);
}

}  // namespace dtrun::head
