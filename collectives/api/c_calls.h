#pragma once

#include "collectives/api/c_arguments.h"
#include "collectives/api/c_errors.h"
#include "collectives/api/handles.h"

namespace dtrun::collectives {

inline int refuse_forked() {
    return ThreadError::keep(
        DTRUN_FORKED, "only the process that made the communicator can use it, no forked child");
}

inline bool is_forked(const dtrun_comm* comm) {
    return comm != nullptr && !comm->owner.is_this_process();
}

inline int refuse_inside() {
    return ThreadError::keep(DTRUN_INVALID,
                             "this thread is in an operation of the communicator, which a signal "
                             "handler or callback has interrupted: "
                             "nothing of it can be waited for before that returns");
}

/// Runs an operation once all earlier ones are done.
/// \param body  Result<void>(Communicator&)
template <class Body>
int operate(dtrun_comm* comm, const Result<void>& checked, Body body) noexcept {
    if (is_forked(comm)) return refuse_forked();
    ThreadState& thread = thread_state;
    if (comm != nullptr && Inside::of(comm, thread) != nullptr) return refuse_inside();
    const Inside inside(comm, thread);
    return guarded([&]() -> Result<void> {
        if (!checked) return checked;
        Communicator& communicator = *comm->communicator;
        const ReleasedLock released(comm->lock, thread);
        const bool on_device = communicator.on_device();
        std::shared_ptr<void> mark;
        if (on_device) mark = communicator.mark(comm->stream.get());
        const auto turn = communicator.work().wait_for_turn([&] {
            // What was started before may wait for ranks that never come.
            if (communicator.is_interruptible() && InterpreterLock::is_interrupted())
                communicator.abort("interrupted");
        });
        if (on_device) communicator.follow(std::move(mark));
        return body(communicator);
    });
}

/// The same of one that operations.def describes.
inline int operate(dtrun_comm* comm, const Given& given) noexcept {
    const Operation what = operation_of(comm, given);
    if (given.compression == nullptr)
        return operate(
            comm, is_plain(comm, given) ? Result<void>() : check(comm, given, what, std::nullopt),
            [&](Communicator& communicator) { return communicator.run(what); });
    const auto how = compression_of(given.compression);
    if (!how) return ThreadError::keep(DTRUN_INVALID, how.error().message);
    return operate(comm, check(comm, given, what, *how), [&](Communicator& communicator) {
        return communicator.run(what, pointer(*how));
    });
}

}  // namespace dtrun::collectives
