#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "contracts/variables.h"
#include "rendezvous/wire/look_messages.h"
#include "worker/ranks/rank_runner.h"

#include <sys/types.h>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::ranks {

class Supervisor;

/// Processor time and memory of ranks, each with all processes below it, and of this host; by one look at
/// /proc. Blocks for as long as that takes: some milliseconds where a thousand processes run.
UsageReport measure_ranks(const std::vector<RunningRank>& ranks);

/// The GPUs of this host, by nvidia-smi: an agent is one static file, which cannot load NVIDIA's library.
///
/// Thread: the loop's. Lifetime: `processes` outlives it, and it outlives look().
class GpuWatch {
public:
    explicit GpuWatch(Supervisor& processes) : processes_(processes) {}

    /// What nvidia-smi has said last.
    const std::vector<GpuUsage>& last() const { return last_; }
    /// Asks it again, unless it was asked within the last second or is being asked. Nothing is known where the
    /// ranks' PATH has none.
    asio::awaitable<void> ask(std::vector<RunningRank> ranks, contracts::Environment env);

private:
    Supervisor& processes_;
    std::vector<GpuUsage> last_;
    std::optional<Deadline> asked_at_;
    bool asking_ = false;
};

/// What `nvidia-smi --query-gpu=index,uuid,name,utilization.gpu,memory.used,memory.total` and
/// `nvidia-smi --query-compute-apps=gpu_uuid,pid` print as CSV without headers and units. Pure, and total.
/// \param rank_of  kNoRank: the process is no rank's
std::vector<GpuUsage> parse_gpus(std::string_view gpus, std::string_view processes,
                                 const std::function<Rank(pid_t)>& rank_of);

}  // namespace dtrun::ranks
