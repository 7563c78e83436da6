#include "collectives/backends/nccl/settings.h"

namespace dtrun::collectives::nccl {

/// A blocking communicator is aborted by way of the one that it was split from, with which it shares
/// a flag. NCCL_COMM_SPLIT_SHARE_RESOURCES=0 gives it a flag of its own, which nobody could set while
/// a call is under way. A non-blocking one has no such calls; NCCL_COMM_BLOCKING=1 leaves us none.
Result<Settings> settings_from(const Environment& environment, bool can_split) {
    const std::string blocking = environment("NCCL_COMM_BLOCKING");
    const std::string share = environment("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    const bool shares = share.empty() || share != "0";
    const bool all_block = !blocking.empty() && blocking != "0";
    if (all_block && (!can_split || !shares))
        return fail(
            Errc::invalid_input,
            "with NCCL_COMM_BLOCKING={}{} no call of NCCL could be interrupted when a rank "
            "is lost: unset it",
            blocking,
            shares ? " and an NCCL older than 2.18" : " and NCCL_COMM_SPLIT_SHARE_RESOURCES=0");
    Settings settings;
    settings.blocking_operations = all_block || (blocking.empty() && shares);
    settings.codecs = environment("DTRUN_CODEC_CUDA_LIBRARY");
    return settings;
}

}  // namespace dtrun::collectives::nccl
