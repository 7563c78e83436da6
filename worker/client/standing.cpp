#include "worker/client/standing.h"

#include <utility>

namespace dtrun::embedded {

Standing::Standing(Place place) : place_(std::move(place)), generation_(place_.generation) {}

void Standing::welcome(Place place) {
    if (!placed_) {
        place_ = std::move(place);
        generation_ = place_.generation;
    }
    placed_ = true;
}

bool Standing::move(const Place& place) {
    if (place.generation <= generation_) return false;
    // Not job and host name, which others read without the lock: these are the same.
    place_.generation = place.generation;
    place_.rank = place.rank;
    place_.world_size = place.world_size;
    place_.local_rank = place.local_rank;
    place_.local_size = place.local_size;
    place_.cross_rank = place.cross_rank;
    place_.cross_size = place.cross_size;
    place_.node_rank = place.node_rank;
    place_.node_count = place.node_count;
    generation_ = place.generation;
    return true;
}

Result<bool> Standing::assign(const Assign& assign) {
    if (assign.generation <= generation_) return false;  // sent again
    if (assign.ranks.size() != 1)
        return fail(Errc::invalid_input, "{} ranks for one process", assign.ranks.size());
    const RankSlot& slot = assign.ranks.front();
    place_.generation = assign.generation;
    place_.rank = std::to_underlying(slot.rank);
    place_.world_size = assign.world_size;
    place_.local_rank = slot.local_rank;
    place_.local_size = 1;
    place_.cross_rank = slot.cross_rank;
    place_.cross_size = slot.cross_size;
    place_.node_rank = assign.node_rank;
    place_.node_count = assign.node_count;
    generation_ = place_.generation;
    placed_ = true;
    return true;
}

}  // namespace dtrun::embedded
