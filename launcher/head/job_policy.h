#pragma once

#include "launcher/plan/options.h"
#include "rendezvous/wire/job_policy.h"

namespace dtrun::head {

/// What the flags of an elastic job ask of its membership.
JobPolicy elastic_policy(const plan::Options& options);
/// What those of `dtrun join` do. A job that may have only one number of ranks is not elastic.
JobPolicy joined_policy(const plan::Options& options);

}  // namespace dtrun::head
