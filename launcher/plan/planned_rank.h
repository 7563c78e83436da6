#pragma once

#include "base/numbered.h"

#include <cstdint>
#include <utility>

namespace dtrun::plan {

/// A rank by its place in this launcher's plan: its index in Placement::ranks.
///
/// In a job of the launcher's own that is the rank's number in the job as well. In a job of which the
/// launcher is one member among others (`dtrun join`), the daemon says anew in each generation which
/// number the first rank of the plan has, and the others follow it.
enum class PlannedRank : std::uint32_t {};

/// \param first  the number of the plan's first rank
constexpr Rank in_job(PlannedRank rank, Rank first) {
    return Rank{std::to_underlying(first) + std::to_underlying(rank)};
}
/// The inverse of in_job(). A rank that is not of this launcher has a place beyond the plan's end.
constexpr PlannedRank in_plan(Rank rank, Rank first) {
    return PlannedRank{std::to_underlying(rank) - std::to_underlying(first)};
}

}  // namespace dtrun::plan
