#pragma once

#include "rendezvous/wire/rank_messages.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace dtrun::stores {

/// Where processes that can live through several worlds of a job ask for their places: on one host, for as
/// long as each of them lives. Pure: no sockets, no clock. It has several faces, which are what processes
/// talk to: Horovod's store (HorovodElastic) and dtrun's own client (agent::ElasticClients).
///
/// A process says once that it can get another place. When hosts have changed, or a collective has failed, it
/// asks for its place in the next world; its answer is held until that world has begun, as it cannot be taken
/// back. A process that was started for a world which has not begun is held at its very first word. So nobody
/// of a running world waits for the start of a newcomer.
///
/// Thread: one.
class RejoinQueue {
public:
    /// Of an answer that is owed.
    using Ticket = std::uint64_t;
    using Tell = std::function<void(const RejoinStatus&)>;
    /// Gives the answer: the process has this rank in a world that has begun.
    using Answer = std::function<void(const RankSlot&, const Assign&)>;

    /// \param tell  tells the head where a process has come to
    explicit RejoinQueue(Tell tell) : tell_(std::move(tell)) {}

    /// A process is about to be started, as this rank of this world: the only one that is known as that.
    void started(SlotIndex place, std::uint64_t generation, Rank rank);
    void ended(SlotIndex place) { processes_.erase(place); }
    bool runs(SlotIndex place) const { return processes_.contains(place); }
    /// The process that was started as this rank of this world.
    std::optional<SlotIndex> started_as(std::uint64_t generation, Rank rank) const;

    /// It can go on in another world.
    void supports_rejoin(SlotIndex place);
    /// It has met the others of its world: if one of these is lost now, it can go on.
    void rendezvoused(SlotIndex place);
    /// It was started for a world that has not begun.
    bool is_early(SlotIndex place) const;
    /// It says its first word, which is answered when its world begins. Requires is_early().
    Ticket hold(SlotIndex place, Answer answer);
    /// It asks for its place in the next world. Requires runs().
    Ticket ask(SlotIndex place, Answer answer);
    /// It waits for an answer.
    bool waits(SlotIndex place) const;
    /// Nobody waits for that answer any more. Idempotent.
    void forget(Ticket ticket);

    /// A world begins: who has a place in it gets his answers, each once.
    void begin(const Assign& world);

private:
    struct Process {
        std::uint64_t born_in = 0;  ///< the world for which it was started
        Rank born_as = kNoRank;
        std::uint64_t generation = 0;  ///< its world
        bool forming = true;           ///< it has not met the others of it
        bool supports_rejoin = false;
        std::map<Ticket, Answer> owed{};
    };

    Ticket owe(SlotIndex place, Answer answer);

    Tell tell_;
    std::uint64_t generation_ = 0;
    Ticket last_ticket_ = 0;
    std::map<SlotIndex, Process> processes_;
};

}  // namespace dtrun::stores
