#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/mpi/network.h"
#include "worker/mpi/world.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

namespace dtrun::mpi {

class PmiHost;

/// PMI-1 and PMI-2, by which MPICH, Intel MPI and MVAPICH find their ranks' places, for the ranks of
/// one host: one socket for each, PMI_FD. What ranks put is in a table of the host; the barrier
/// carries what is new in it to all hosts.
///
/// Thread: the executor's. Lifetime: the network and the observer outlive it; the owner calls stop()
/// and awaits join().
class PmiServer {
public:
    PmiServer(asio::any_io_executor executor, MpiNetwork& network, MpiObserver& observer);
    ~PmiServer();

    /// For the ranks of a generation; those of the one before are cut off.
    /// \param mode  pmix: whoever asks is refused, with what to do instead
    void begin(const MpiWorld& world, MpiMode mode);

    /// The rank's end of its socket, close-on-exec. After begin(), once for each rank of this host.
    /// Errc: internal (no descriptors)
    Result<Fd> connect(std::uint32_t rank);

    /// Ranks that wait in a barrier, since when.
    std::vector<RankWait> waits() const;

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    struct Connection;
    using Shared = std::shared_ptr<Connection>;

    asio::awaitable<void> serve(Shared connection);
    asio::awaitable<void> give_up_later(std::uint64_t begun);
    void close_all() noexcept;

    asio::any_io_executor executor_;
    MpiNetwork& network_;
    MpiObserver& observer_;
    std::uint64_t begun_ = 0;  ///< how many generations
    std::unique_ptr<PmiHost> host_;
    std::set<Shared> connections_;
    TaskGroup tasks_;
};

}  // namespace dtrun::mpi
