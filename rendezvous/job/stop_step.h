#pragma once

#include "base/clock.h"
#include "rendezvous/wire/exchange_messages.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace dtrun {

/// The step before which all ranks of a generation leave it when hosts change by plan, so that none waits in it
/// for one that has left: far enough ahead that every rank hears of it before it comes there. Pure.
///
/// How far ranks are is known by heartbeats, which may be kLate old; so the steps that they do in that time, at
/// the speed that was seen, are added, and kAtLeast.
class StopStep {
public:
    static constexpr std::chrono::milliseconds kLate{1'000};
    static constexpr std::chrono::milliseconds kWindow{1'000};  ///< in which speed is measured
    static constexpr std::uint64_t kAtLeast = 2;

    /// A generation begins.
    void begin() { *this = {}; }
    /// Progress of all ranks as it is known now.
    /// \return another step than was agreed, once, as a rank was beyond that before it heard of it
    std::optional<std::uint64_t> observe(const Heartbeat& progress, Deadline now);
    /// Chooses the step. \return 0 if no rank counts steps
    std::uint64_t agree();

private:
    std::uint64_t ahead() const;

    std::uint64_t fastest_ = 0;
    bool counts_ = false;                                     ///< some rank counts steps
    std::optional<std::pair<Deadline, std::uint64_t>> base_;  ///< when which step was the fastest
    double per_second_ = 0;
    std::uint64_t agreed_ = 0;
    bool corrected_ = false;
};

}  // namespace dtrun
