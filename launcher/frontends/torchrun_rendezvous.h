#pragma once

#include "base/result.h"
#include "launcher/frontends/torchrun.h"

namespace dtrun::frontends {

/// Decides whose ranks the job has, by what torchrun's words say of where nodes meet: those of this machine
/// alone, of all hosts from this one command, or of one node of a job that nodes enter by themselves.
/// Errc: invalid_input
Result<void> set_rendezvous(ParsedTorchrun& parsed, plan::EnvironmentView environment);

}  // namespace dtrun::frontends
