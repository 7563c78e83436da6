#pragma once

#include "rendezvous/wire/exchange_messages.h"
#include "worker/client/connect/frame_socket.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/step/key.h"

#include <string>
#include <vector>

namespace dtrun::embedded {

/// Finds rank 0's server among the nodes of the step, and gets in.
///
/// Rank 0 is on the first node of the list, except with `-m arbitrary` and in heterogeneous jobs:
/// when it has not been found there for most of a second, the others are tried as well, more of them
/// each time. A port that answers with something else, or not in time (250 ms at first, five seconds
/// at last), is passed over. Each name is resolved once. Tries go on until the context ends, with pauses of 50 to 1,000 ms.
/// \param nodes  of the step, at least one
/// \param key    learns the step's secret
/// \return a connection over which rank 0 has answered `hello`
/// Failures: timed_out, cancelled, invalid (rank 0 does not want us)
Outcome<FrameSocket> find_rank_0(const SlurmStep& step, const std::vector<std::string>& nodes,
                                 StepKey& key, const Hello& hello, const WaitContext& context);

}  // namespace dtrun::embedded
