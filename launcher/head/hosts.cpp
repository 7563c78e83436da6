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
      numbers_(spec.placement.ranks.size()) {
    grow();
}

void Hosts::grow() {
    while (states_.size() < spec_.hosts.size()) {
        const HostId host{count()};
        states_.emplace_back();
        by_name_.emplace(name(host), host);
    }
    numbers_.add_slots(spec_.placement.ranks.size());
}

void Hosts::joined(HostId host, std::string address, const Join& join) {
    HostState& state = states_[host];
    state.joined = true;
    state.address = std::move(address);
    state.addresses = join.addresses;
    state.relay_port = join.relay_port;
    state.machine = join.machine;
    by_address_.emplace(state.address, host);
    for (const std::string& other : state.addresses)
        if (other != state.address) by_address_.emplace(other, host);
    if (!state.machine.empty()) by_machine_.emplace(state.machine, host);
}

void Hosts::forget(HostId host) {
    const auto erase = [host](auto& index, const std::string& key) {
        const auto [first, last] = index.equal_range(key);
        const auto own =
            std::find_if(first, last, [host](const auto& at) { return at.second == host; });
        if (own != last) index.erase(own);
    };
    const HostState& state = states_[host];
    erase(by_address_, state.address);
    for (const std::string& other : state.addresses) erase(by_address_, other);
    erase(by_machine_, state.machine);
    states_[host] = HostState{};
}

std::optional<HostId> Hosts::twin_of(HostId host) const {
    const auto [first, last] = by_machine_.equal_range(states_[host].machine);
    std::optional<HostId> twin;
    for (auto at = first; at != last; ++at)
        if (at->second != host && states_[at->second].session != nullptr &&
            !states_[at->second].refused)
            twin = std::min(twin.value_or(at->second), at->second);
    return twin;
}

bool Hosts::is_behind(const AgentSession& session, HostId host) const {
    return has(host) && states_[host].relayed && states_[host].session == &session;
}

bool Hosts::is_known(const AgentSession& session) const {
    if (!session.host()) return false;
    if (states_[*session.host()].session == &session) return true;
    return tree_.is_relay(*session.host()) &&
           std::ranges::any_of(
               states_, [&session](const HostState& state) { return state.session == &session; });
}

std::optional<HostId> Hosts::named(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return std::nullopt;
    return found->second;
}

std::optional<HostId> Hosts::at(const std::string& address) const {
    // A bridge of containers has the same address on many hosts: the first of them is as good as any.
    const auto [first, last] = by_address_.equal_range(address);
    if (first == last) return std::nullopt;
    return std::min_element(first, last,
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->second;
}

bool Hosts::is_used(const std::string& address) const {
    const auto [first, last] = by_address_.equal_range(address);
    return std::any_of(first, last,
                       [this](const auto& at) { return states_[at.second].session != nullptr; });
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
    std::string_view bytes(frame);
    const auto view = next_frame(bytes);
    const auto payload = std::make_shared<const Bytes>((*view)->payload);
    for (const HostId host : hosts()) {
        const HostState& state = states_[host];
        if (state.session == nullptr || state.done) continue;
        if (state.relayed)
            send(host, frame);
        else
            state.session->link().send_soon((*view)->type, {}, payload);
    }
}

}  // namespace dtrun::head
