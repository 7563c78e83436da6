#pragma once

#include "base/clock.h"
#include "rendezvous/job/stop_step.h"
#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <optional>

namespace dtrun {

/// What ranks are told of a planned change, and the step at which they leave together. Pure.
class ChangeNotice {
public:
    void begin();   ///< a generation begins
    void forget();  ///< nothing that was planned counts any more
    /// A notice for all ranks. \param notice  without the step
    Notify make(Notify notice);
    /// Whether it is time to look() again, with the progress of all ranks: to add that up for each news would take
    /// a large job all of its time.
    bool is_due(Deadline now) const;
    /// The notice once more, with another step, as a rank was beyond that before it heard of it. To be called when
    /// there is news of progress and it is due.
    std::optional<Notify> look(const Heartbeat& progress, Deadline now);

private:
    StopStep stop_step_;
    std::optional<Notify> last_;
    Deadline looked_{};
};

}  // namespace dtrun
