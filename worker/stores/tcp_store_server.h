#pragma once

#include "base/asio.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/task_group.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun {

/// Serves torch's TCPStore, in every dialect from torch 1.13 on.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join().
class TcpStoreServer {
public:
    explicit TcpStoreServer(asio::any_io_executor executor);

    /// Takes over a bound socket and listens. Errc: internal
    Result<void> listen(Fd bound);

    /// A generation begins: connections of the one before are closed, and `store`, which outlives
    /// the generation, is empty.
    /// \param peers  numeric addresses that may connect besides those of this machine
    void begin(JobStore& store, std::uint32_t world_size, std::vector<std::string> peers);

    /// Who has been waiting for how long, for what.
    std::vector<RankWait> waits() const;

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    // ...
};

}  // namespace dtrun
