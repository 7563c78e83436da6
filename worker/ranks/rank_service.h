#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "base/result.h"
#include "contracts/variables.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/ranks/reset_connections.h"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::ranks {

/// What one rank gets at its start, beyond what every rank of its host has.
struct RankOffer {
    contracts::MpiFacts mpi{};
    std::uint16_t horovod_port = 0;  ///< of Horovod's store for it alone; 0: that of all
    std::string error_file{};        ///< for torch's @record; empty: none
    std::vector<Fd> inherited{};     ///< kept open until the rank was forked
    std::vector<unsigned> cpus{};    ///< processors that it may use; empty: the agent's
    /// OMP_NUM_THREADS of ranks by place, in turn, where that is not what the facts say any more.
    std::vector<std::uint32_t> threads{};
};

/// Something that an agent does for the ranks of its host besides running them: a store of a framework,
/// MPI, error files. The agent calls each of its services at every step of a rank's life, in the order in
/// which worker/agent/services.cpp lists them.
///
/// Thread: the loop's. Lifetime: the owner calls stop() and awaits join() before destruction.
class RankService {
public:
    virtual ~RankService() = default;

    /// Before the host joins. \param facts  what ranks are told; the service adds what it knows
    /// Errc: internal
    virtual Result<void> open(contracts::ContractFacts&) { return {}; }
    /// Gets ready for a program; an error is the host's problem, for the user.
    /// \param program  what ranks will execute; valid during the call
    virtual asio::awaitable<Result<void>> prepare(const std::string& program);
    /// What kind of problem a failed prepare() is.
    virtual HostProblem problem() const { return HostProblem::mpi; }

    /// Before the ranks of a generation start. Errc: invalid_input, internal
    virtual Result<void> begin(const Assign&) { return {}; }
    /// Returns when ranks can be offered what is best for them, often at once. Called after
    /// begin().
    virtual asio::awaitable<void> ready();
    /// A generation begins in which processes of the one before live on, with other numbers.
    /// Errc: invalid_input, internal
    virtual Result<void> go_on(const Assign&) { return {}; }
    /// Adds what a rank is to have at its start. \param world  may begin later. Errc: internal
    virtual Result<void> offer(const Assign& world, const RankSlot& rank, RankOffer& offer);
    /// A rank executes its program; the service adds what it sees of that.
    virtual void started(RankPid&) {}
    /// A rank has ended: what it has left is taken.
    virtual void ended(Exited&) {}
    /// Called a moment after ended(), when what the rank had said before was read.
    virtual void describe(Exited&) const {}
    /// Adds where ranks of this generation listen for each other, on all hosts.
    virtual void add_endpoints(std::set<Endpoint>&) const {}
    /// Hosts change: tells processes that can live on with other numbers.
    virtual void notify(const Notify&) {}
    /// The generation is about to end, as far as is known; called again when more is.
    virtual void changing(const Change&) {}
    /// Adds who waits for what, and for how long.
    virtual void add_waits(std::vector<RankWait>&) const {}
    /// No rank of the generation runs any more. \param gone  called later, once nothing is left of it
    virtual void end(std::function<void()> gone) { gone(); }

    virtual void stop() noexcept {}
    virtual asio::awaitable<void> join();
};

}  // namespace dtrun::ranks
