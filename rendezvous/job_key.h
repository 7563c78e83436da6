#pragma once

#include "base/ids.h"

#include <string_view>

namespace dtrun {

/// How jobs of a daemon are told apart on the wire, and what their members prove to know; both follow
/// from the job's name and the daemon's secret (docs/PROTOCOL.md).
JobId job_id_of(std::string_view name);
Secret job_secret_of(const Secret& daemon, const JobId& job);

}  // namespace dtrun
