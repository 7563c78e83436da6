#pragma once

#include "base/clock.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace dtrun::ranks {

/// When processes are started to be kept ready for ranks, and when that is given up. Such a process is
/// *starting* until it has said that it is *parked*. A pure state machine: no processes, no clock.
class StandbyPlan {
public:
    /// The ranks' start is over when none has been started for so long: until then processors are theirs.
    static constexpr std::chrono::seconds kQuiet{5};
    static constexpr std::chrono::seconds kStartLimit{120};  ///< for a process to be parked
    static constexpr std::uint32_t kRestartsMax =
        2;  ///< of processes that end before they are used

    explicit StandbyPlan(std::uint32_t wanted) : wanted_(wanted) {}

    // Events.
    void ranks_change() { quiet_at_ = Deadline::max(); }  ///< they are being ended, or started
    void ranks_run(Deadline now) { quiet_at_ = now + kQuiet; }
    void started(Deadline now) { late_at_ = now + kStartLimit; }
    void parked();
    void used() { --parked_; }  ///< a parked one is a rank now, or was ended by us
    void start_ended() { late_at_ = Deadline::max(); }  ///< by us: the one that was starting
    /// One has ended by itself. \param was_parked  else it was starting
    void died(bool was_parked, const std::string& how);
    void give_up(std::string why);

    // Decisions.
    bool wants_one(Deadline now) const;  ///< to be started now; one after the other
    bool is_late(Deadline now) const { return now >= late_at_; }
    bool is_starting() const { return late_at_ != Deadline::max(); }
    /// When these may change by themselves.
    Deadline next_deadline() const;
    bool has_given_up() const { return !why_.empty(); }
    const std::string& why() const { return why_; }

private:
    std::uint32_t wanted_;
    std::uint32_t parked_ = 0;
    std::uint32_t deaths_ = 0;
    Deadline quiet_at_ = Deadline::max();
    Deadline late_at_ = Deadline::max();  ///< max: none is starting
    std::string why_;                     ///< it was given up
};

}  // namespace dtrun::ranks
