#pragma once

#include "base/loop/asio.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/mpi/network.h"
#include "worker/mpi/pmix_collectives.h"
#include "worker/mpi/pmix_messages.h"
#include "worker/mpi/pmix_names.h"
#include "worker/mpi/world.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dtrun::mpi {

/// What the ranks of this host ask of PMIx in a generation, and libpmix cannot answer alone: brought
/// to the other hosts, the job's store and the observer, and answered.
///
/// Thread: the executor's.
class PmixRequests {
public:
    /// dtrun-pmix, as seen from here.
    class Process {
    public:
        virtual ~Process() = default;
        /// Starts it unless it runs; it may not serve yet. \return false: it cannot be had
        virtual bool need_process() = 0;
        virtual void to_process(Bytes frame) = 0;
    };

    PmixRequests(asio::any_io_executor executor, MpiNetwork& network, MpiObserver& observer,
                 MpiWorld world, Process& process);

    const MpiWorld& world() const { return world_; }
    /// A frame of the process, of a kind that is a request. Errc: invalid_input
    Result<void> take(const PmixFrame& frame);
    void take_mail(std::string_view bytes);
    /// Whether a rank would miss the process.
    bool in_use() const { return !connected_.empty() || !fences_.empty(); }
    /// The process is no more, and there will be no other one.
    void process_gone();

    std::vector<RankWait> waits(Deadline now) const;

private:
    struct Wait {
        std::vector<std::uint32_t> ranks;  ///< of this host
        Deadline since{};
        bool of_all = false;  ///< ranks of the job
    };
    struct Want {
        std::uint32_t node_rank = 0;  ///< who asks
        std::uint64_t id = 0;
    };
    struct Held {
        Deadline until{};
        std::uint64_t id = 0;
    };

    void on(const PmixConnected& message);
    void on(const PmixFinalized& message);
    void on(const PmixAborted& message);
    void on(PmixFence& message);
    void on(const PmixModex& message);
    void on(const PmixData& message);
    template <class Message>
    Result<void> decode_to(const PmixFrame& frame);
    void on(const PmixSpawn& message);
    void on(const PmixPublish& message) { names_.publish(message); }
    void on(const PmixLookup& message) { names_.lookup(message); }
    void on(const PmixUnpublish& message) { names_.unpublish(message); }
    void asked(const PmixAsk& ask);

    void fence_ended(std::uint64_t id, bool lost, std::string bytes);
    void answer(std::uint64_t id, std::int32_t status, std::string bytes);
    void tell(const Want& want, std::int32_t status, std::string bytes);
    void hold(std::uint64_t id);  ///< answers later, when the head knows what this host knows
    void look();

    MpiNetwork& network_;
    MpiObserver& observer_;
    const MpiWorld world_;
    Process& process_;
    PmixCollectives collectives_;
    PmixNames names_;
    std::map<std::uint64_t, Wait> fences_;         ///< without an answer, by id
    std::map<std::uint32_t, Deadline> connected_;  ///< ranks, since when
    std::set<std::uint32_t> not_connected_;        ///< ranks of this host that never were
    std::map<std::uint64_t, Want> wants_;          ///< of other hosts, by our id
    std::uint64_t last_want_ = 0;
    bool told_of_spawn_ = false;
    std::deque<Held> held_;
    Timer timer_;  ///< for the first that is held
    std::shared_ptr<char> alive_ =
        std::make_shared<char>();  ///< for what is called when we are gone
};

}  // namespace dtrun::mpi
