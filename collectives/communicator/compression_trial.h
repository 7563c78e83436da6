#pragma once

#include <algorithm>
#include <array>
#include <limits>

namespace dtrun::collectives {

/// Whether operations of one kind, format and size between hosts take less time compressed than in full. Both ways are
/// tried with the program's own calls, in turn, and the ranks compare the times; what was faster is kept for the next thousand
/// calls. docs/decisions/051 says why.
///
/// Ranks that have called the same have the same state.
class CompressionTrial {
public:
    enum Way : std::size_t { compressed, full };
    /// The least seconds that a value has taken, by Way.
    using Times = std::array<double, 2>;

    /// How the next call goes.
    Way way() const { return kept_for_ > 0 ? kept_ : way_of(calls_); }

    /// That call has taken so many seconds for a value on this rank.
    /// \return whether the ranks decide now
    bool took(double seconds) {
        if (kept_for_ > 0) {
            --kept_for_;
            return false;
        }
        double& least = times_[way_of(calls_)];
        if (calls_++ >= kUncounted) least = std::min(least, seconds);
        return calls_ == kUncounted + 2 || calls_ == kCalls;
    }

    /// This rank's, of which each rank takes the least of all ranks. A rank that comes late finds the others waiting:
    /// the least is the time of the operation, without that of the wait.
    const Times& times() const { return times_; }

    /// \param least  the least times of all ranks
    void decide(const Times& least) {
        const auto [faster, slower] = std::minmax(least[compressed], least[full]);
        if (calls_ < kCalls && slower < kClear * faster) return;
        kept_ = least[compressed] <= least[full] ? compressed : full;
        kept_for_ = kKeptFor;
        calls_ = kUncounted;
        times_ = kNone;
    }

private:
    static constexpr Times kNone{std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::infinity()};
    /// Calls at first, one of each way, that make connections and allocate memory.
    static constexpr unsigned kUncounted = 2;
    static constexpr unsigned kCalls = kUncounted + 6;  ///< of a trial
    static constexpr double kClear = 1.5;  ///< so much faster is clear after one call of each way
    static constexpr unsigned kKeptFor = 1'000;  ///< calls until the next trial

    static Way way_of(unsigned call) { return call % 2 == 0 ? compressed : full; }

    Times times_ = kNone;
    unsigned calls_ = 0;  ///< of this trial
    unsigned kept_for_ = 0;
    Way kept_ = compressed;
};

}  // namespace dtrun::collectives
