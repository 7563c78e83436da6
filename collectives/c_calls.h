#pragma once

#include "collectives/c_errors.h"
#include "collectives/handles.h"

namespace dtrun::collectives {

inline int refuse_forked() {
    return ThreadError::keep(
        DTRUN_FORKED, "only the process that made the communicator can use it, no forked child");
}

inline bool is_forked(const dtrun_comm* comm) {
    return comm != nullptr && !comm->owner.is_this_process();
}

/// Runs an operation once all earlier ones are done.
/// \param body  Result<void>(Communicator&)
template <class Body>
int operate(dtrun_comm* comm, const Result<void>& checked, Body body) noexcept {
    if (is_forked(comm)) return refuse_forked();
    return guarded([&]() -> Result<void> {
        if (!checked) return checked;
        Communicator& communicator = *comm->communicator;
        const InterpreterLock::Released released(comm->lock);
        const auto mark = communicator.mark(comm->stream.get());
        const auto turn = communicator.work().wait_for_turn();
        communicator.follow(mark);
        return body(communicator);
    });
}

}  // namespace dtrun::collectives
