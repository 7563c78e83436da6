#pragma once

struct dtrun_comm;

namespace dtrun::collectives {

/// From now on no thread that calls operations of the communicator has a lock of an interpreter.
void forget_interpreter(dtrun_comm* comm);

}  // namespace dtrun::collectives
