#pragma once

#include "rendezvous/wire/rank_messages.h"

#include <string>
#include <vector>

namespace dtrun::ranks {

/// Replaces ${rank}, ${local_rank}, ${world_size}, ${local_world_size} and ${node_rank} in arguments
/// by a rank's own numbers; whatever else begins with a dollar stays.
std::vector<std::string> replace_macros(std::vector<std::string> argv, const Assign& assign,
                                        const RankSlot& slot);

}  // namespace dtrun::ranks
