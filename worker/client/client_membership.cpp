#include "worker/client/client_membership.h"

#include <utility>

namespace dtrun::embedded {

ClientMembership::ClientMembership(RankInfo info)
    : info_(std::move(info)), generation_(info_.generation) {}

void ClientMembership::welcome(RankInfo info) {
    if (!placed_) {
        info_ = std::move(info);
        generation_ = info_.generation;
    }
    placed_ = true;
}

bool ClientMembership::move(const RankInfo& info) {
    if (info.generation <= generation_) return false;
    // Not job and host name, which others read without the lock: these are the same.
    info_.generation = info.generation;
    info_.rank = info.rank;
    info_.world_size = info.world_size;
    info_.local_rank = info.local_rank;
    info_.local_size = info.local_size;
    info_.cross_rank = info.cross_rank;
    info_.cross_size = info.cross_size;
    info_.node_rank = info.node_rank;
    info_.node_count = info.node_count;
    generation_ = info.generation;
    return true;
}

Result<bool> ClientMembership::assign(const Assign& assign) {
    if (assign.generation <= generation_) return false;  // sent again
    if (assign.ranks.size() != 1)
        return fail(Errc::invalid_input, "{} ranks for one process", assign.ranks.size());
    const RankSlot& slot = assign.ranks.front();
    info_.generation = assign.generation;
    info_.rank = std::to_underlying(slot.rank);
    info_.world_size = assign.world_size;
    info_.local_rank = slot.local_rank;
    info_.local_size = 1;
    info_.cross_rank = slot.cross_rank;
    info_.cross_size = slot.cross_size;
    info_.node_rank = assign.node_rank;
    info_.node_count = assign.node_count;
    generation_ = info_.generation;
    placed_ = true;
    return true;
}

}  // namespace dtrun::embedded
