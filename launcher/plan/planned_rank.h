#pragma once

#include "base/numbered.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace dtrun::plan {

/// A place of this launcher's plan: an index in Placement::ranks.
///
/// In a job of the launcher's own that has one world, place and rank have the same number. In an elastic job
/// a place is a slot, which has another rank, or none, in each world; and in a job of which the launcher is
/// one member among others (`dtrun join`), the daemon says anew in each generation which ranks it has.
enum class PlannedRank : std::uint32_t {};

/// For fmt.
constexpr auto format_as(PlannedRank rank) {
    return std::to_underlying(rank);
}

/// Which rank each place has now.
class RankNumbers {
public:
    /// Every place has the rank of the same number.
    explicit RankNumbers(std::size_t places = 0) {
        for (const Rank rank : all_ranks(places)) ranks_.push_back(rank);
    }
    /// \param ranks  by place; kNoRank: none
    explicit RankNumbers(std::vector<Rank> ranks) : ranks_(std::move(ranks)) {}

    /// There are so many places: those that are new have no rank.
    void add_places(std::size_t places) { ranks_.resize(places, kNoRank); }

    std::size_t places() const { return ranks_.size(); }
    /// kNoRank: none
    Rank of(PlannedRank place) const { return ranks_[std::to_underlying(place)]; }
    /// Nothing for ranks that are not of this launcher.
    std::optional<PlannedRank> place_of(Rank rank) const {
        const std::size_t same = std::to_underlying(rank);
        if (same < ranks_.size() && ranks_[same] == rank)
            return PlannedRank{std::to_underlying(rank)};
        for (std::uint32_t place = 0; place < ranks_.size(); ++place)
            if (ranks_[place] == rank && rank != kNoRank) return PlannedRank{place};
        return std::nullopt;
    }

private:
    std::vector<Rank> ranks_;
};

}  // namespace dtrun::plan
