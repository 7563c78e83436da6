#pragma once

#include "base/asio.h"
#include "base/result.h"
#include "base/task_group.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun {

/// Serves Horovod's HTTP store to the ranks of this host, on loopback, out of the job's own store.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join().
class HorovodServer {
public:
    explicit HorovodServer(asio::any_io_executor executor);

    /// Listens on 127.0.0.1. \return the port. Errc: internal
    Result<std::uint16_t> listen();

    /// A generation begins: connections of the one before are closed, and `store`, which outlives
    /// the generation, is empty.
    /// \param ranks  of this host
    void begin(JobStore& store, std::uint32_t world_size, std::vector<RankSlot> ranks);

    /// Who has been waiting for how long, for what.
    std::vector<RankWait> waits() const;

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    // ...
};

}  // namespace dtrun
