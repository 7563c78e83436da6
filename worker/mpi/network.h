#pragma once

#include "base/numbered.h"
#include "base/result.h"
#include "rendezvous/wire/exchange_messages.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::mpi {

/// How the MPI servers of a job's hosts talk to each other, in its current generation.
///
/// Thread: one.
class MpiNetwork {
public:
    virtual ~MpiNetwork() = default;

    /// What every host that has ranks brought to a fence, in no particular order. An error: a rank has
    /// ended, or the generation is over; Errc::closed.
    using Fenced = std::function<void(Result<std::vector<std::string>>)>;
    /// Comes to a fence for all ranks of this host: one message up and down the tree. Every host calls
    /// it as often as the others for each name.
    /// \param done  called once, later, not from within the call; never after the next generation began
    virtual void fence(std::string_view name, std::string bytes, Fenced done) = 0;

    /// Brings bytes to one host's agent, in order with what we sent it before.
    virtual void mail(std::uint32_t node_rank, std::string bytes) = 0;
    /// From now on takes what others mail, also what came before.
    virtual void open_mail(std::function<void(std::string bytes)> take) = 0;

    /// The job's keys and values, for names that programs publish.
    virtual stores::JobStore& store() = 0;
};

/// Is told what ranks do with MPI. Its functions must not call back into the caller.
///
/// Thread: one.
class MpiObserver {
public:
    virtual ~MpiObserver() = default;
    virtual void mpi_initialized(Rank rank) = 0;  ///< again after mpi_finalized(): again
    virtual void mpi_finalized(Rank rank) = 0;
    /// MPI_Abort. The rank may end by itself, or wait to be ended.
    virtual void mpi_aborted(Rank rank, std::int32_t code) = 0;
    /// The rank, or kNoRank for any, cannot have MPI. \param why  for the user; what to do instead
    virtual void mpi_refused(Rank rank, std::string why) = 0;
    virtual void mpi_noted(Rank rank, std::string what) = 0;  ///< for the user
    /// The rank has called MPI_Comm_spawn, and was refused. Told once in a generation.
    virtual void mpi_spawn_refused(Rank rank) = 0;
};

}  // namespace dtrun::mpi
