#pragma once

#include "base/clock.h"
#include "base/numbered.h"
#include "rendezvous/elastic/world_plan.h"
#include "rendezvous/wire/rank_messages.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace dtrun {

/// What becomes of the slot of a rank that has failed, where other processes live on.
enum class Refill : std::uint8_t {
    now,    ///< the others go on without it, and a new process joins them when it is ready
    wait,   ///< the others wait a while for a new process
    never,  ///< its host is left alone for a while, as with Horovod's own driver
};

struct GenerationLimits {
    std::uint32_t ranks_start = 1;  ///< the first world has at least so many
    std::uint32_t ranks_min = 1;    ///< every other world
    WorldSizes sizes{};
    std::vector<Seat> fixed{};  ///< the only world that there can be; empty: as plan_world() says
    /// Hosts may be lost, and may come back. If not, the owner ends the job when one is lost.
    bool elastic = false;
    std::chrono::milliseconds timeout{600'000};  ///< to wait for ranks_min slots; 0: do not wait
    /// How long a world that is large enough waits for hosts that are on their way.
    std::chrono::milliseconds last_call{1'000};
    std::optional<std::uint32_t> resets_max{};    ///< how many worlds may follow the first
    std::optional<std::uint32_t> failures_max{};  ///< how many ranks may fail and hosts be lost
    /// How long a host that was lost is left alone: this long at first, then each time twice as
    /// long up to the maximum. A random part of up to the minimum is added.
    std::chrono::milliseconds cooldown_min{10'000}, cooldown_max{300'000};
    std::uint32_t seed = 1;  ///< of those random parts
    Refill refill = Refill::now;
    std::chrono::milliseconds refill_wait{10'000};  ///< with Refill::wait
    /// For survivors of a loss to ask for a new place; who has not by then is ended.
    std::chrono::milliseconds desk_timeout{300'000};
};

/// The generations of a job that one head launches: which slots of which hosts form its next world, and how the
/// present one ends. A pure state machine: events in, orders out; no sockets, no clock.
///
/// A world ends in one of two ways. Either all ranks are ended and start again; or, if every process that lives
/// has said that it can go on in another place, each asks for one (`waiting`), and gets it when all have asked.
/// Processes that are to join those are started beforehand, for the coming generation, and held.
///
/// Hosts keep their order from world to world, and newcomers come last, so a world changes as little as it
/// can. A program that fails by itself again and again is not started for ever: see kFailuresInARow.
class Generations {
public:
    /// So many failures in a row, each sooner than kStable after the start, are the program's own fault, and
    /// end the job. If all of them were in one slot, that slot is at fault, and is left alone for a while.
    static constexpr std::uint32_t kFailuresInARow = 3;
    static constexpr std::chrono::seconds kStable{60};

    explicit Generations(GenerationLimits limits);

    // Events.
    /// The head begins to get an agent onto a host that was not part of the job.
    void host_listed(HostId host, std::uint32_t slots, Deadline now);
    void host_ready(HostId host, Deadline now);   ///< its agent has joined
    void host_failed(HostId host, Deadline now);  ///< no agent could be started there
    void host_lost(HostId host, const std::string& why, Deadline now);  ///< after it was ready
    /// Nothing of the ranks is left on this host.
    void host_paused(HostId host, std::uint64_t generation, Deadline now);
    void host_rolled(HostId host, std::uint64_t number, Deadline now);  ///< the answer to a roll
    /// How a process has ended.
    struct RankEnd {
        bool well = false;       ///< with code 0
        bool own_fault = false;  ///< it exited with another code, or crashed: nobody has killed it
        std::string why{};
    };
    void rank_ended(HostId host, SlotIndex place, const RankEnd& end, Deadline now);
    /// Where a process has come to that can live through several worlds.
    void process_says(HostId host, SlotIndex place, DeskState state, Deadline now);
    /// All ranks are to start again, and nobody is to blame.
    void restart(const std::string& why, Deadline now);
    void tick(Deadline now);  ///< at next_deadline(), or any time

    // Orders.
    struct Pausing {
        std::uint64_t generation = 0;  ///< the coming one
        std::string why;
    };
    struct End {
        enum class Cause : std::uint8_t {
            cannot_start,  ///< no host can be used
            rank_failed,   ///< the program itself fails, see kFailuresInARow
            too_few,       ///< ranks, for too long
            resets,        ///< resets_max is exceeded
            failures,      ///< failures_max is
            finished,      ///< ranks have ended well, and all others ask for a world in vain
        };
        Cause cause{};
        std::string why;
    };
    /// To be carried out in this order.
    struct Orders {
        std::vector<HostId> connect{};   ///< try once more to get an agent onto these hosts
        std::optional<Pausing> pause{};  ///< end all ranks on every host that is ready
        /// End the connections among ranks: some wait for others, that have noticed a loss, and not
        /// for those that are lost.
        bool sever = false;
        std::vector<std::pair<HostId, SlotIndex>> kill{};  ///< end these processes
        /// Start the fresh ones of these ranks, for generation() + 1, which has not begun.
        std::optional<std::vector<Seat>> prepare{};
        bool notify = false;                  ///< tell all processes that hosts have changed
        std::optional<std::uint64_t> roll{};  ///< have every host answer with host_rolled()
        /// generation() has these ranks: start those that are fresh and were not prepared.
        std::optional<std::vector<Seat>> begin{};
        std::optional<End> ended{};  ///< nothing will follow
    };
    Orders take_orders() { return std::exchange(orders_, {}); }
    Deadline next_deadline() const;

    // State.
    enum class Phase : std::uint8_t {
        waiting,  ///< for slots: no ranks run
        running,
        pausing,     ///< all ranks are being ended
        collecting,  ///< processes that live on ask for their places, one after the other
        calling,     ///< all have asked: every host says that it is there
        ended,
    };
    Phase phase() const { return phase_; }
    std::uint64_t generation() const { return generation_; }   ///< 0 until the first one begins
    std::uint32_t resets() const { return resets_; }           ///< worlds after the first
    const std::vector<Seat>& world() const { return world_; }  ///< of the generation, by rank
    /// Slots in which a rank could run now, or does.
    std::uint32_t slots_ready() const;
    std::uint32_t slots_needed() const;  ///< for a world to begin
    /// Hosts that are left alone, and until when.
    std::vector<std::pair<HostId, Deadline>> cooling() const;

private:
    enum class State : std::uint8_t { unlisted, coming, ready, away };
    struct Process {
        bool lives = false;     ///< it has a rank in the present world, and has not ended
        bool prepared = false;  ///< it was started for the next one
        bool ending = false;    ///< it was told to end, and has not yet
        bool capable = false, gated = false, settled = false, waiting = false;  ///< see DeskState
    };
    struct Slot {
        Process process{};
        std::uint32_t failures = 0;  ///< in a row
        std::uint32_t closings = 0;
        std::optional<Deadline> closed_until{};
    };
    struct Host {
        State state = State::unlisted;
        std::vector<Slot> slots{};
        std::uint64_t seated = 0;              ///< its first world since it has joined; 0: none yet
        bool is_ending_ranks = false;          ///< it was told to, and has not answered
        std::uint32_t failures = 0;            ///< in a row
        std::optional<Deadline> cool_until{};  ///< while it is away
    };
    /// A rank that has failed, until it is known whether that was because of a lost host.
    struct Failure {
        HostId host{};
        SlotIndex place{};
        bool own_fault = false;
        std::string why{};
    };
    enum class With : std::uint8_t { survivors, newcomers };

    Slot& slot_at(HostId host, SlotIndex place) {
        return hosts_[host].slots[std::to_underlying(place)];
    }
    const Slot& slot_at(HostId host, SlotIndex place) const {
        return hosts_[host].slots[std::to_underlying(place)];
    }
    std::vector<SlotIndex> living(HostId host) const;
    template <class Check>
    bool all_living(Check check) const;
    template <class Do>
    void each_process(Do apply);
    bool is_keepable() const;
    std::vector<Seat> plan(With with) const;

    void lose(const std::string& why, Deadline now);
    void pause(std::string why, Deadline now);
    bool all_paused() const;
    void settle(Deadline now);
    void blame(const Failure& failure, Deadline now);
    void collect(Deadline now);
    void gather(Deadline now);
    void tick_collecting(Deadline now);
    bool prepare();
    bool is_prepared() const;
    void abandon_prepared();
    void call(std::vector<Seat> world);
    void look(Deadline now);
    bool waits_for_first() const;
    void begin(std::vector<Seat> world, Deadline now);
    void call_more(Deadline now);
    void join_more(Deadline now);
    bool may_reset();
    void end(End::Cause cause, std::string why);
    void end_too_few();
    void cool(Host& host, Deadline now);
    void close_slot(Slot& slot, Deadline now);
    Deadline cooled(std::uint32_t times, Deadline now);
    bool is_coming() const;
    void count_failure(const std::string& why);

    GenerationLimits limits_;
    std::minstd_rand random_;
    PerHost<Host> hosts_;
    Phase phase_ = Phase::waiting;
    std::uint64_t generation_ = 0;
    std::uint32_t resets_ = 0;
    std::uint32_t failures_ = 0;
    std::vector<Seat> world_;
    bool is_finishing_ = false;  ///< a rank of this world has ended well: nobody is added to it
    Deadline began_{};
    std::optional<Failure> failure_;  ///< the first in this generation
    bool host_was_lost_ = false;      ///< in this generation: ranks may have failed because of it
    std::uint32_t own_faults_ = 0;    ///< in a row
    std::optional<std::pair<HostId, SlotIndex>> same_slot_;  ///< of all of them; else none
    std::vector<Seat> target_;  ///< the next world: processes are prepared for it, or it is called
    bool notified_ = false;     ///< processes were told that hosts have changed
    std::uint64_t roll_ = 0;    ///< number of the last call
    std::vector<HostId> to_roll_;           ///< who has not answered it
    std::optional<Deadline> desk_until_;    ///< for processes to ask for a place
    std::optional<Deadline> refill_until_;  ///< with Refill::wait: for a new process
    std::optional<Deadline> waiting_since_;
    std::optional<Deadline> call_until_;  ///< the next world waits for more until then
    Orders orders_;
};

}  // namespace dtrun
