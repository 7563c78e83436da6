#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dtrun::simulation {

/// What goes wrong in a run, as shares of what could.
struct Faults {
    bool daemon_dies = true;  ///< by SIGKILL
    bool power_cuts = true;   ///< of any machine
    bool programs_die = true;
    bool network = true;  ///< broken, lost, slow, one-way, late
    bool stops = true;    ///< processes that stand still, or starve
    bool disk = true;     ///< slow, full, failing
    bool clocks = true;   ///< stepped
    bool flips =
        false;  ///< bits of the daemon's disk: what was acknowledged is refused then, or as it was
    bool disk_forgets =
        false;  ///< what it has synced: no daemon can bear that, and it must be found
    std::chrono::milliseconds lasting{30'000};
};

/// What a run has come to.
struct RunResult {
    std::size_t acknowledged = 0;  ///< operations, while faults happened
    std::size_t keys = 0, fences = 0, failed_fences = 0, generations = 0;
    std::size_t ends = 0;     ///< members that were told why their job has ended
    std::size_t overlap = 0;  ///< most operations on a key at the same time
    std::size_t daemon_starts = 0;
    std::size_t refused = 0;                ///< times that programs were told of a damaged job
    bool is_read = false;                   ///< whether the store could be read at the end
    std::chrono::milliseconds healed_in{};  ///< from the last fault until all was over
    std::uint64_t trace = 0;                ///< of all that has happened
};

/// A daemon with a state directory, a run of another launcher's ranks, members of an elastic job, and
/// faults that the seed decides. After these the network heals, and all must come to its end.
/// \throws Contradiction, and std::runtime_error for what does not end
RunResult simulate(std::uint32_t seed, const Faults& faults);

}  // namespace dtrun::simulation
