#pragma once

#include "collectives/dtrun/group.h"
#include "tests/collectives/support/thread_ranks.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace dtrun::collectives {

/// Ranks that are threads, spread over hosts of which only the numbers are told: host_of[rank].
using Layout = std::vector<std::uint32_t>;

inline GroupSpec layout_spec(std::uint32_t rank, const Layout& layout, KeyStore& store) {
    GroupSpec spec = thread_spec(rank, static_cast<std::uint32_t>(layout.size()), store);
    spec.topology = Topology(rank, layout);
    return spec;
}

/// A group of the backend `dtrun`, with the memory that it shares.
struct LevelsRank {
    Arrangement arrangement;
    std::unique_ptr<Group> group;
};

inline Result<LevelsRank> connect_levels(const GroupSpec& spec, Near near = {}) {
    LevelsRank made;
    auto group = over_dtrun::connect(spec);
    if (!group) return std::unexpected(group.error());
    made.group = std::move(*group);
    auto arrangement = arrange(spec, *made.group, near);
    if (!arrangement) return std::unexpected(arrangement.error());
    made.arrangement = std::move(*arrangement);
    if (auto done = made.group->arrange(made.arrangement); !done)
        return std::unexpected(done.error());
    return made;
}

/// \param near  by rank; empty: nobody is bound
inline std::vector<LevelsRank> connect_all(const Layout& layout, KeyStore& store,
                                           std::vector<Result<void>>& results,
                                           const std::vector<Near>& near = {}) {
    std::vector<LevelsRank> ranks(layout.size());
    results = run_ranks(static_cast<std::uint32_t>(layout.size()),
                        std::function([&](std::uint32_t rank) -> Result<void> {
                            auto made = connect_levels(layout_spec(rank, layout, store),
                                                       near.empty() ? Near{} : near[rank]);
                            if (!made) return std::unexpected(made.error());
                            ranks[rank] = std::move(*made);
                            return {};
                        }));
    return ranks;
}

}  // namespace dtrun::collectives
