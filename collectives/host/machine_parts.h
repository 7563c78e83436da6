#pragma once

#include "collectives/host/locality.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// The ranks of a host by the parts of the machine that they are bound to: its NUMA nodes, or its sockets where a
/// node has few. Every part has the same number of ranks.
class MachineParts {
public:
    /// \param ranks  of the host, by place
    /// \return nothing where that would not save anything: ranks that are bound to no part, parts that differ, few
    ///         ranks in each
    static std::optional<MachineParts> of(std::span<const Locality> ranks);

    std::uint32_t parts() const { return static_cast<std::uint32_t>(places_.size()); }
    std::uint32_t ranks_of_part() const { return static_cast<std::uint32_t>(places_[0].size()); }
    /// \param index  of a rank among those of its part
    std::uint32_t place(std::uint32_t part, std::uint32_t index) const {
        return places_[part][index];
    }
    std::uint32_t part_of(std::uint32_t place) const { return part_of_[place]; }
    std::uint32_t index_of(std::uint32_t place) const { return index_of_[place]; }

private:
    explicit MachineParts(std::span<const std::int32_t> numbers);
    bool pay() const;

    std::vector<std::vector<std::uint32_t>> places_;  ///< by part and index
    std::vector<std::uint32_t> part_of_;              ///< by place
    std::vector<std::uint32_t> index_of_;             ///< by place
};

}  // namespace dtrun::collectives
