#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace dtrun::collectives {

/// Whether operations of one kind, format and size between hosts take less time compressed than in full. Both ways are
/// tried with the program's own calls, and the ranks compare the times; what was faster is kept for the next thousand
/// calls. docs/decisions/051 says why.
///
/// Ranks that have called the same have the same state.
class CompressionTrial {
public:
    enum Way : std::size_t { compressed, full };
    /// The least seconds that a value has taken in some call, by Way.
    using Times = std::array<double, 2>;

    /// How the next call goes.
    Way way() const { return tries() ? way_of(calls_) : kept_; }

    /// Whether the time of the next call is of use: the ranks meet before it.
    bool tries() const { return kept_for_ == 0; }

    /// That call has taken so many seconds for a value on this rank, since the ranks met if tries().
    /// \return whether the ranks decide now
    bool took(double seconds) {
        if (!tries()) {
            --kept_for_;
            return false;
        }
        double& least = times_[way_of(calls_)];
        if (calls_++ >= kUncounted) least = std::min(least, seconds);
        return calls_ == kUncounted + 2 || calls_ == kCalls;
    }

    /// This rank's. All decide by those of the slowest: of ranks that begin together, some are done
    /// before the operation is, as they only receive, or have little to send.
    const Times& times() const { return times_; }

    /// \param slowest  of times() of all ranks the greatest
    void decide(const Times& slowest) {
        const auto [faster, slower] = std::minmax(slowest[compressed], slowest[full]);
        if (calls_ < kCalls && slower < kClear * faster) return;
        kept_ = slowest[compressed] <= slowest[full] ? compressed : full;
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
    /// So much faster is clear after one call of each way: lengths that share a trial differ by less.
    static constexpr double kClear = 2;
    static constexpr unsigned kKeptFor = 1'000;  ///< calls until the next trial

    /// As Thue and Morse order two things: 0110 1001. A program that calls arrays of two lengths by turns has both ways
    /// tried with both.
    static Way way_of(unsigned call) { return std::popcount(call) % 2 == 0 ? compressed : full; }

    Times times_ = kNone;
    unsigned calls_ = 0;  ///< of this trial
    unsigned kept_for_ = 0;
    Way kept_ = compressed;
};

}  // namespace dtrun::collectives
