#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "base/result.h"
#include "contracts/variables.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/mpi/linked_mpi.h"
#include "worker/mpi/pmi_server.h"
#include "worker/mpi/pmix_server.h"
#include "worker/mpi/relayed_network.h"
#include "worker/ranks/rank_service.h"

#include <sys/types.h>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dtrun::mpi {

/// MPI for the ranks of one host: offers PMIx and PMI to each, and knows how far each has come.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join().
class MpiService final : public ranks::RankService, private MpiObserver {
public:
    struct Options {
        MpiMode mode = MpiMode::automatic;
        std::string host_name;                    ///< what the user calls this host
        std::string job;                          ///< AgentConfig::mpi_job
        std::string directory_prefix = "dtrun-";  ///< of directories, for whoever removes them
        contracts::Environment env;               ///< of the ranks, in which libpmix is looked for
        std::vector<std::uint32_t> program_ranks{};    ///< MpiWorld's
        std::chrono::milliseconds load_limit{10'000};  ///< for libpmix, in prepare()
        std::function<void(const MpiStatus&)> tell;
        /// A rank has called MPI_Abort. Some libraries then wait for the launcher to end it.
        std::function<void(Rank rank)> aborted;
        /// \param pid  a process of ours that is no rank's
        std::function<void(pid_t pid)> started;
    };
    /// \param send  takes frames for the tree, as of an agent below
    MpiService(asio::any_io_executor executor, stores::RelayedStore::Send send, Options options);
    ~MpiService() override;

    Result<void> open(contracts::ContractFacts& facts) override;
    /// Where the program is known to need PMIx, gets that ready. Errc: not_found, invalid_input, internal
    asio::awaitable<Result<void>> prepare(const std::string& program) override;
    Result<void> begin(const Assign& assign) override;
    asio::awaitable<void> ready() override { return pmix_.ready(); }
    Result<void> offer(const Assign& world, const RankSlot& slot, ranks::RankOffer& offer) override;
    /// Adds how far the rank has come with MPI, and the code that it has called MPI_Abort with.
    void describe(Exited& exited) const override;
    void add_waits(std::vector<RankWait>& waits) const override;
    void end(std::function<void()> gone) override;
    void stop() noexcept override;
    asio::awaitable<void> join() override;

    /// A reply or the end of a fence. Errc: invalid_input
    Result<void> on_frame(const FrameView& frame) { return network_.on_frame(frame); }

private:
    void mpi_initialized(Rank rank) override;
    void mpi_finalized(Rank rank) override;
    void mpi_aborted(Rank rank, std::int32_t code) override;
    void mpi_refused(Rank rank, std::string why) override;
    void mpi_noted(Rank rank, std::string what) override;
    void mpi_spawn_refused(Rank rank) override;

    void tell(MpiStatus news);
    bool offered() const { return options_.mode != MpiMode::none; }
    Result<void> make_directory();
    void remove_directory();

    Options options_;
    RelayedNetwork network_;
    PmixServer pmix_;
    PmiServer pmi_;
    LinkedMpi linked_ = LinkedMpi::none;
    bool prepared_ = false;   ///< libpmix has been loaded for a program of the job
    std::string directory_;   ///< of this generation, or the coming one
    bool in_memory_ = false;  ///< the directory is
    MpiWorld world_;
    std::map<Rank, MpiUse> uses_;               ///< by rank
    std::map<Rank, std::int32_t> abort_codes_;  ///< by rank
    bool told_ = false;                         ///< that a rank uses MPI
};

}  // namespace dtrun::mpi
