#pragma once

#include "collectives/coordinator/request.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
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

    /// Operations that have been told, and still wait for the same ranks.
    struct Told {
        std::string
            what;  ///< names, and who has not asked; the same as long as the first one waits
        std::vector<std::uint32_t> waiting;  ///< ranks of the group
        std::chrono::milliseconds age{0};
    };
    struct Findings {
        std::vector<std::string> lines;
        std::vector<Told> told;
        std::string shutdown;  ///< why everything is to fail; "" if it is not
    };
    Findings look(std::span<const Stalled> open, std::chrono::milliseconds now);

private:
    using Members = std::vector<const Stalled*>;
    using Pattern = std::vector<std::uint32_t>;  ///< who is absent

    /// When operations that have been told are told again.
    struct Next {
        std::chrono::milliseconds at{0};
        std::uint64_t first = 0;  ///< Stalled::order of the first of them
        std::string what{};       ///< of Told
    };

    std::string describe(const Members& members, std::span<const Stalled> open,
                         std::chrono::milliseconds age) const;
    std::string missing(const Members& members, std::span<const Stalled> open) const;
    std::string ranks(const std::vector<std::uint32_t>& list) const;

    const StallTimes times_;
    const std::vector<std::uint32_t> names_;
    std::map<Pattern, Next> next_;
};

/// Decides what a rank tells that hears nothing of another one: over a backend where ranks with nothing pending do not
/// say so, or if one is stopped. Then nobody knows for whom it waits. It is told at the times of StallCheck.
class SilenceCheck {
public:
    /// It begins to wait for what the others have to say.
    void begin(std::chrono::milliseconds now) { since_ = now, next_ = {}; }
    /// \return Finding::what that was found last, or ""
    std::string end() {
        since_.reset();
        return std::exchange(what_, {});
    }

    struct Finding {
        std::string line;  ///< "": there is nothing to be told
        std::string what;  ///< as of Told
        std::chrono::milliseconds age{0};
    };
    /// \param limit  after which it is told; 0: never
    /// \param first  name of the operation that this rank has waited for longest, and how many there are
    Finding look(std::chrono::milliseconds now, std::chrono::milliseconds limit,
                 const std::string& first, std::size_t number);

private:
    std::optional<std::chrono::milliseconds> since_;
    std::chrono::milliseconds next_{0};
    std::string what_;
};

/// Says for what this rank has waited too long, and when that is over, to who looks at the job: each once.
///
/// Thread: any.
class StallReports {
public:
    /// \param waited  nothing: it is over
    using Tell = std::function<void(const std::string& what,
                                    std::optional<std::chrono::milliseconds> waited)>;

    explicit StallReports(Tell tell) : tell_(std::move(tell)) {}
    void add(const std::string& what, std::chrono::milliseconds waited);
    void end(const std::string& what);
    /// All others are over.
    void keep_only(const std::set<std::string>& still);

private:
    const Tell tell_;
    std::mutex mutex_;  ///< so that what is said comes in order
    std::set<std::string> open_;
};

}  // namespace dtrun::collectives
