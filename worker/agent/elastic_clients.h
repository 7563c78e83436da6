#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "rendezvous/wire/change.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/agent/connections.h"
#include "worker/agent/hang_detector.h"
#include "worker/agent/rank_stalls.h"
#include "worker/agent/shared_board.h"
#include "worker/stores/rejoin_queue.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::agent {

/// What an agent says to the clients (libdtrun) of its ranks when the generation changes, and they to it: the
/// face of the RejoinQueue for programs of dtrun's own client. A client that says "elastic" can leave its
/// generation (`rejoin`), and is welcomed in the next; one that was started for a generation which has not
/// begun is welcomed when it begins. In an elastic job all ranks have a board in their memory that says whether
/// a change is coming.
///
/// Besides it watches the sections that ranks are in, and knows what they say to wait for.
///
/// Thread: the executor's. Lifetime: what the parts refer to outlives it; the owner calls stop() and awaits
/// join().
class ElasticClients {
public:
    struct Parts {
        asio::any_io_executor executor;
        Connections& connections;
        stores::RejoinQueue& rejoins;
        std::string host_name;
        std::function<Welcome(const RankSlot&, const Assign&)> describe;
        std::function<void(Rank, const std::string& why)> hangs;  ///< a section takes too long
    };
    explicit ElasticClients(Parts parts);

    /// For an elastic job. Errc: internal
    Result<void> open() { return board_.open(); }
    /// A process says hello that was started at this place.
    /// \return nothing if it is welcomed later. Errc: denied
    Result<std::optional<Welcome>> hello(PeerId peer, SlotIndex place, const Hello& hello);
    /// Any rank says hello: it gets the board if it wants it.
    void give_board(PeerId peer, const Hello& hello);
    void left(PeerId peer);
    /// Adds what ranks have said to wait for.
    void add_waits(std::vector<RankWait>& waits) const;

    /// A generation begins; called before the queue answers who has waited for it.
    void begin(const Assign& world);
    /// The generation is about to end. \param grace_ms  until ranks are killed; 0: not known
    void announce(const Change& change, std::uint32_t grace_ms, const std::string& why);
    /// These processes get no place in the next generation.
    void dismiss(const std::vector<SlotIndex>& places, std::uint32_t grace_ms);

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    struct Client {
        SlotIndex place{};
        bool elastic = false;
        std::optional<stores::RejoinQueue::Ticket> ticket;  ///< of the answer that it waits for
    };

    Result<void> rejoin(PeerId peer, const Rejoin& rejoin);
    Result<void> section(PeerId peer, const Section& section);
    Result<void> stall(PeerId peer, const Stall& stall);
    void welcome(PeerId peer, const RankSlot& rank, const Assign& world);
    const RankSlot* slot_of(SlotIndex place) const;
    /// Its rank in this generation, which a client that cannot rejoin has not been told; nothing if its process
    /// has no place any more.
    std::optional<Rank> rank_of(PeerId peer) const;
    void ring();
    asio::awaitable<void> watch_sections();
    void tell_overdue();

    Parts parts_;
    Assign world_;
    Change told_;  ///< what clients know of
    SharedBoard board_;
    std::map<PeerId, Client> clients_;
    std::map<PeerId, Fd> bells_;  ///< eventfds, rung when the board was written
    HangDetector hang_detector_;
    RankStalls stalls_;
    bool watching_ = false;
    Timer overdue_;
    TaskGroup tasks_;
};

}  // namespace dtrun::agent
