#pragma once

#include "collectives/coordinator/request.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun::collectives {

/// After which time something is done about operations that some rank has not asked for.
struct StallTimes {
    std::chrono::milliseconds warning{60'000};  ///< until they are told; 0: never
    std::chrono::milliseconds shutdown{0};      ///< until all of them fail; 0: never

    bool any() const { return warning.count() > 0; }
    /// How often to look. It takes up to four looks until a time is known to be over, see
    /// Negotiator::stalled(): so what is told comes at most a fifth late.
    std::chrono::milliseconds look_every() const;
};

/// An operation that some ranks wait for, and others have not asked for.
struct Stalled {
    const Request* request = nullptr;
    std::vector<std::uint32_t> waiting;
    std::vector<std::uint32_t> absent;
    std::chrono::milliseconds age{0};  ///< for which it has waited at the least
    std::uint64_t order = 0;           ///< in which it was first asked for
};

/// Decides what is to be told of operations that wait, and when to give them up. Operations that the
/// same ranks have not come to are told together: after the warning time, and then each time that
/// they have waited twice as long, at least every hour. Joins are told, and never given up: who has
/// joined waits as long as others have work.
class StallCheck {
public:
    /// \param names  by rank of the group: its rank in the job
    StallCheck(StallTimes times, std::vector<std::uint32_t> names);

    struct Findings {
        std::vector<std::string> lines;
        std::string shutdown;  ///< why everything is to fail; "" if it is not
    };
    Findings look(std::span<const Stalled> open, std::chrono::milliseconds now);

private:
    using Members = std::vector<const Stalled*>;
    using Pattern = std::vector<std::uint32_t>;  ///< who is absent

    std::string describe(const Members& members, std::span<const Stalled> open,
                         std::chrono::milliseconds age) const;
    std::string ranks(const std::vector<std::uint32_t>& list) const;

    const StallTimes times_;
    const std::vector<std::uint32_t> names_;
    std::map<Pattern, std::chrono::milliseconds> next_;  ///< when what has been told is told again
};

/// Decides what a rank tells that hears nothing of another one: over a backend where ranks with nothing pending do not
/// say so, or if one is stopped. Then nobody knows for whom it waits. It is told at the times of StallCheck.
class SilenceCheck {
public:
    /// It begins to wait for what the others have to say.
    void begin(std::chrono::milliseconds now) { since_ = now, next_ = {}; }
    void end() { since_.reset(); }

    /// \param limit  after which it is told; 0: never
    /// \param first  name of the operation that this rank has waited for longest, and how many there are
    /// \return "" if there is nothing to be told
    std::string look(std::chrono::milliseconds now, std::chrono::milliseconds limit,
                     const std::string& first, std::size_t number);

private:
    std::optional<std::chrono::milliseconds> since_;
    std::chrono::milliseconds next_{0};
};

}  // namespace dtrun::collectives
