#include "worker/mpi/pmix_collectives.h"

#include "base/log.h"

#include <algorithm>

namespace dtrun::mpi {

PmixCollectives::PmixCollectives(const MpiWorld& world, Mail mail, Done done)
    : world_(world), mail_(std::move(mail)), done_(std::move(done)) {}

std::set<std::uint32_t> PmixCollectives::nodes_of(const Ranks& ranks) const {
    std::set<std::uint32_t> nodes;
    for (const std::uint32_t rank : ranks) nodes.insert(world_.node_of_rank[rank]);
    return nodes;
}

bool PmixCollectives::possible(const Ranks& ranks) const {
    return !ranks.empty() && std::ranges::is_sorted(ranks) && ranks.back() < world_.world_size;
}

void PmixCollectives::come(PmixFence fence) {
    const Who who{fence.collective, fence.ranks};
    const std::uint64_t round = rounds_[who]++;
    waiting_.emplace(Key{who, round}, fence.id);
    const std::uint32_t first = *nodes_of(fence.ranks).begin();
    PmixPart part{fence.collective, std::move(fence.ranks), round,
                  world_.node_rank, std::move(fence.bytes), fence.lost};
    if (first == world_.node_rank) return take(std::move(part));
    mail_(first, pmix_encode(part));
}

void PmixCollectives::take(PmixPart part) {
    if (!possible(part.ranks)) return log::warn("PMIx: a part of a fence of no ranks of this job");
    const std::set<std::uint32_t> nodes = nodes_of(part.ranks);
    if (*nodes.begin() != world_.node_rank || !nodes.contains(part.node_rank))
        return log::warn("PMIx: a part of a fence that is not ours");
    const Key key{{part.collective, part.ranks}, part.round};
    Gathering& gathering = gatherings_[key];
    if (!gathering.nodes.insert(part.node_rank).second) return;
    gathering.bytes += part.bytes;
    gathering.lost |= part.lost;
    if (gathering.nodes != nodes) return;
    PmixWhole whole{part.collective, std::move(part.ranks), part.round, std::move(gathering.bytes),
                    gathering.lost};
    gatherings_.erase(key);
    for (const std::uint32_t node : nodes)
        if (node != world_.node_rank) mail_(node, pmix_encode(whole));
    take(std::move(whole));
}

void PmixCollectives::take(PmixWhole whole) {
    const auto waiting =
        waiting_.extract(Key{{whole.collective, std::move(whole.ranks)}, whole.round});
    if (!waiting.empty()) done_(waiting.mapped(), whole.lost, std::move(whole.bytes));
}

}  // namespace dtrun::mpi
