#pragma once

#include "base/result.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace dtrun::collectives::nccl {

struct Settings {
    /// Most ranks per unique id, since all of them connect to the root of the id.
    std::uint32_t ranks_per_id = 256;
    /// Whether operations run on a blocking communicator, whose calls return once work is in the
    /// stream. The first, non-blocking one, which can be aborted while it is made, starts a thread
    /// for each operation.
    bool blocking_operations = true;
    /// How long ranks wait for each other when a group is closed.
    std::chrono::milliseconds close_within{5'000};
    /// How long an abort may take, which in some versions of NCCL hangs; then it is left to itself.
    std::chrono::milliseconds abort_within{10'000};
    /// The file with the codecs for the GPU; "": beside the plug-in.
    std::string codecs;
    /// Values per round of a compressed allreduce, of all ranks' chunks together.
    std::size_t compressed_values = 8 << 20;
};

/// Value of a variable of the environment, "" if it is not set.
using Environment = std::function<std::string(const char* name)>;

/// What the environment leaves us of our own choice, so that abort() ends a call that is inside
/// NCCL, whatever it says. Variables of NCCL beat what a communicator is configured with.
/// \param can_split  the library has ncclCommSplit()
/// Errc: invalid_input (variables with which nothing could end such a call)
Result<Settings> settings_from(const Environment& environment, bool can_split);

}  // namespace dtrun::collectives::nccl
