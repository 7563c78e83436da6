#pragma once

#include "launcher/job_spec.h"

#include <string>

namespace dtrun {

/// The whole map of a job, for a person: every rank with host, slot, address and user, the command,
/// the directory and the environment added.
std::string plan_text(const JobSpec& spec);

/// The same for programs: one JSON object
/// {"world_size", "command", "directory", "sources", "environment", "hosts": [...], "ranks": [{"rank", "host",
/// "slot", "local_rank", "cross_rank", "world_size", "local_size", "cross_size", "address", "user"}]}.
std::string plan_json(const JobSpec& spec);

}  // namespace dtrun
