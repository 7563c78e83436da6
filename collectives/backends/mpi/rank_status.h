#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::collectives {

/// What a rank tells the others before any of them calls a function of its library, which nothing can interrupt.
struct RankStatus {
    std::string library{};  ///< "Open MPI", "oneCCL 2021.16.2"
    bool begun = false;     ///< MPI_Init has been called
    std::string problem{};  ///< why it cannot take part; "" if it can

    std::string encode() const;
    /// Errc: invalid_input
    static Result<RankStatus> decode(std::string_view text);
};

/// All members meet in the store, at most spec.timeout long, and get the same answer: go on, or the
/// reason of one that cannot, or that does not fit the others. Two round trips.
/// \param step  a word; each meeting of a group has its own
/// Errc: timed_out (names a rank that did not come), invalid_input; those of the store
Result<void> meet(const GroupSpec& spec, std::string_view step, const RankStatus& mine);

}  // namespace dtrun::collectives
