#include "launcher/head/hosts.h"

#include "rendezvous/wire/message.h"
#include "rendezvous/wire/relayed.h"

#include <algorithm>

namespace dtrun::head {

Hosts::Hosts(const plan::JobSpec& spec)
    : spec_(spec),
      tree_(static_cast<std::uint32_t>(spec.hosts.size()),
            static_cast<std::uint32_t>(spec.options.tree_threshold)),
      states_(spec.hosts.size()) {}

bool Hosts::is_behind(const AgentSession& session, HostId host) const {
    return has(host) && states_[host].relayed && states_[host].session == &session;
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
    if (found != states_[host].ranks.end()) return found->second;
    const std::vector<plan::PlannedRank>& ranks = spec_.hosts[host].ranks;
    return ranks.size() == 1 ? plan::in_job(ranks.front(), first_rank_) : kNoRank;
}

std::optional<plan::PlannedRank> Hosts::planned_on(HostId host, Rank rank) const {
    const auto& places = spec_.placement.ranks;
    const plan::PlannedRank planned = plan::in_plan(rank, first_rank_);
    const std::size_t at = std::to_underlying(planned);
    if (at >= places.size() || plan::host_of(places[at]) != host) return std::nullopt;
    return planned;
}

const std::string& Hosts::name_of_host(Rank rank) const {
    return spec_.host_of(plan::in_plan(rank, first_rank_));
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
