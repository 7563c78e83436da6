#pragma once

#include "base/numbered.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace dtrun::plan {

/// A slot of this launcher's plan: an index in Placement::ranks.
///
/// In a job of the launcher's own that has one world, slot and rank have the same number. In an elastic job
/// a place is a slot, which has another rank, or none, in each world; and in a job of which the launcher is
/// one member among others (`dtrun join`), the daemon says anew in each generation which ranks it has.
enum class SlotId : std::uint32_t {};

/// For fmt.
constexpr auto format_as(SlotId rank) {
    return std::to_underlying(rank);
}

/// Which rank each place has now.
class RankNumbers {
public:
    /// Every place has the rank of the same number.
    explicit RankNumbers(std::size_t slots = 0) {
        for (const Rank rank : all_ranks(slots)) ranks_.push_back(rank);
    }
    /// \param ranks  by place; kNoRank: none
    explicit RankNumbers(std::vector<Rank> ranks) : ranks_(std::move(ranks)) {}

    /// There are so many places: those that are new have no rank.
    void add_slots(std::size_t slots) { ranks_.resize(slots, kNoRank); }

    std::size_t slots() const { return ranks_.size(); }
    /// kNoRank: none
    Rank of(SlotId slot) const { return ranks_[std::to_underlying(slot)]; }
    /// Nothing for ranks that are not of this launcher.
    std::optional<SlotId> slot_of(Rank rank) const {
        const std::size_t same = std::to_underlying(rank);
        if (same < ranks_.size() && ranks_[same] == rank) return SlotId{std::to_underlying(rank)};
        for (std::uint32_t slot = 0; slot < ranks_.size(); ++slot)
            if (ranks_[slot] == rank && rank != kNoRank) return SlotId{slot};
        return std::nullopt;
    }

private:
    std::vector<Rank> ranks_;
};

}  // namespace dtrun::plan
