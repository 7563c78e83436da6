#pragma once

#include "collectives/backends/mpi/rank_status.h"
#include "collectives/backends/oneccl/library.h"
#include "collectives/backends/oneccl/runtime.h"
#include "collectives/group.h"

#include <memory>

namespace dtrun::collectives::oneccl {

/// A communicator, and where its ranks have met.
struct JoinedComm {
    std::shared_ptr<Kvs> kvs;
    Comm comm;
};

/// Makes the communicator of a group: all ranks tell rank 0 whether they can take part, and rank 0
/// publishes where to meet, or why not.
/// Errc: timed_out (names who has not come), invalid_input (a rank has a problem, or another
/// version), closed, internal
Result<JoinedComm> bootstrap(OnecclRuntime& runtime, const std::shared_ptr<const Library>& library,
                             const GroupSpec& spec, const RankStatus& mine);

}  // namespace dtrun::collectives::oneccl
