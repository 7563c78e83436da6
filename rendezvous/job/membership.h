#pragma once

#include "base/clock.h"
#include "base/numbered.h"
#include "base/result.h"
#include "rendezvous/job/summed_per_host.h"
#include "rendezvous/job/world_plan.h"
#include "rendezvous/wire/job_policy.h"
#include "rendezvous/wire/rank_messages.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun {

/// The generations of a job: which slots of which hosts form its next world, and how the present one ends. A pure
/// state machine: events in, orders out; no sockets, no clock. The head of a job drives it, whose hosts are those that
/// it reaches, and a daemon, whose hosts come by themselves and offer slots for as long as they like.
///
/// A world ends in one of two ways. Either all ranks are ended and start again; or, if every process that lives
/// has said that it can go on in another place, each asks for one (`waiting`), and gets it when all have asked.
/// Processes that are to join those are started beforehand, for the coming generation, and held.
///
/// Hosts may come and go at any time. Those that are to go are *delisted*: their ranks end with the world, and
/// then they are released.
///
/// Hosts keep their order from world to world, and newcomers come last, so a world changes as little as it
/// can. A program that fails by itself again and again is not started for ever: see kFailuresInARow.
class Membership {
public:
    /// So many failures in a row, each sooner than kStable after the start, are the program's own fault, and
    /// end the job. If all of them were in one slot, that slot is at fault, and is left alone for a while; but so
    /// many slots, or more than others are left for, are not at fault, unless a world lasts that long between them. One that
    /// is at fault once more before that is left alone until a world has, so that it is seen whether others work.
    /// With --refill never all this is said of hosts, which are left alone for a while after each failure.
    static constexpr std::uint32_t kFailuresInARow = 3;
    static constexpr std::chrono::seconds kStable{60};
    /// How long a host that is to go waits for others that are to come in its place.
    static constexpr std::chrono::seconds kReplacedWithin{30};

    /// \param fixed  the only world that there can be; empty: as plan_world() says
    /// \param seed   of the random parts of cool-downs
    explicit Membership(JobPolicy policy, std::vector<RankAssignment> fixed = {},
                        std::uint32_t seed = 1);

    // Events.
    /// The job may use so many slots of this host: a new one, or one that has more or less than before.
    /// \param order  newcomers get their first ranks by it, and by their numbers where it is the same
    void host_listed(HostId host, std::uint32_t slots, Deadline now, std::uint64_t order = 0);
    void host_delisted(HostId host, Deadline now);  ///< the job may not use it any more
    /// Nothing of the job is left on a host that was released.
    void host_left(HostId host, Deadline now);
    void host_ready(HostId host, Deadline now);   ///< its agent has joined
    void host_failed(HostId host, Deadline now);  ///< no agent could be started there
    /// A host that was ready is lost.
    struct Loss {
        HostId host{};
        std::string why;
    };
    /// What follows is decided once for all of them: a job of thousands may lose half of its hosts at once.
    void hosts_lost(std::span<const Loss> losses, Deadline now);
    void host_lost(HostId host, const std::string& why, Deadline now) {
        const Loss loss{host, why};
        hosts_lost(std::span(&loss, 1), now);
    }
    /// Nothing of the ranks is left on this host.
    void host_paused(HostId host, std::uint64_t generation, Deadline now);
    void host_ready_to_commit(HostId host, std::uint64_t number,
                              Deadline now);  ///< the answer to query_commit
    /// How a process has ended.
    struct RankEnd {
        bool well = false;       ///< with code 0
        bool own_fault = false;  ///< it exited with another code, or crashed: nobody has killed it
        std::string why{};
        /// There was none when it was to be ended. The head may have learned that before, and have had
        /// another one started.
        bool was_none = false;
        /// By dtrun, which nobody here has told to: its host is about to be lost.
        bool is_ours = false;
    };
    /// What the end of a process means.
    enum class Meaning : std::uint8_t {
        nothing,  ///< it had no rank, or all are being ended
        well,     ///< its part of the job is done
        saved,    ///< it was warned, and starts again with all others
        lost,     ///< its world has to do without it
    };
    Meaning rank_ended(HostId host, SlotIndex place, const RankEnd& end, Deadline now);
    /// All processes of a host that have ranks have ended well, and it goes.
    void host_finished(HostId host, Deadline now);
    /// Where a process has come to that can live through several worlds.
    void process_says(HostId host, SlotIndex place, RejoinState state, Deadline now);
    /// All ranks are to start again, and nobody is to blame.
    void restart(const std::string& why, Deadline now);
    void tick(Deadline now);  ///< at next_deadline(), or any time

    // Orders.
    struct Pausing {
        std::uint64_t generation = 0;  ///< the coming one
        std::string why;
    };
    /// What those are told who will not be asked.
    struct Warning {
        std::string why;
        std::chrono::milliseconds time{};  ///< until all ranks are ended
    };
    struct End {
        enum class Cause : std::uint8_t {
            cannot_start,       ///< no host can be used
            host_lost,          ///< of a job that is not elastic
            rank_failed,        ///< the program itself fails, see kFailuresInARow
            too_many_failures,  ///< of ranks: rank_failures_max is exceeded
            too_few,            ///< ranks, for too long
            resets,             ///< resets_max is exceeded
            failures,           ///< failures_max is
            finished,  ///< all ranks have ended well, or some, and all others ask because of that
        };
        Cause cause{};
        std::string why;
        std::optional<HostId> host{};  ///< of the rank that has failed, where that is the cause
    };
    /// To be carried out in this order.
    struct Orders {
        std::vector<HostId> connect{};   ///< get an agent onto these hosts, or try it once more
        std::optional<Warning> warn{};   ///< tell all ranks that they will start again
        std::optional<Pausing> pause{};  ///< end all ranks on every host that is ready
        /// End the connections among ranks: some wait for others, that have noticed a loss, and not
        /// for those that are lost.
        bool reset_connections = false;
        std::vector<std::pair<HostId, SlotIndex>> kill{};  ///< end these processes
        /// Start the fresh ones of these ranks, for generation() + 1, which has not begun.
        std::optional<std::vector<RankAssignment>> prepare{};
        bool notify = false;  ///< tell all processes that hosts have changed
        std::optional<std::uint64_t>
            query_commit{};  ///< have every host answer with host_ready_to_commit()
        /// generation() has these ranks: start those that are fresh. All others have processes, or had:
        /// the end of one that is not known yet is still to come.
        std::optional<std::vector<RankAssignment>> begin{};
        std::vector<HostId> release{};  ///< end everything of the job on these hosts
        std::optional<End> ended{};     ///< nothing will follow
    };
    Orders take_orders() { return std::exchange(orders_, {}); }
    Deadline next_deadline() const;

    /// A world that cannot begin yet.
    struct Shortage {
        std::uint32_t ready = 0, needed = 0;  ///< slots; a world of `needed` may begin
        std::optional<Deadline> until{};      ///< then the job ends; nothing: whatever happens
    };

    // State.
    enum class Phase : std::uint8_t {
        waiting,  ///< for slots: no ranks run
        running,
        pausing,     ///< all ranks are being ended
        collecting,  ///< processes that live on ask for their places, one after the other
        committing,  ///< all have asked: every host says that it is there
        ended,
    };
    Phase phase() const { return phase_; }
    std::uint64_t generation() const { return generation_; }  ///< 0 until the first one begins
    std::uint32_t resets() const { return resets_; }          ///< worlds after the first
    /// Of the generation, by rank.
    const std::vector<RankAssignment>& world() const { return world_; }
    /// Slots in which a rank could run now, or does.
    std::uint32_t slots_ready() const { return sums().open; }
    std::uint32_t slots_needed() const;        ///< for a world to begin
    std::optional<Shortage> shortage() const;  ///< nothing: no slots are waited for
    /// Whether all ranks have been told that they will start again.
    bool is_warned() const { return warned_until_.has_value(); }
    /// Whether another rank may fail without ending the job.
    bool may_fail() const {
        return rank_failures_ <
               policy_.rank_failures_max.value_or(policy_.elastic ? UINT32_MAX : 0);
    }
    bool is_draining() const { return sums().draining > 0; }  ///< ranks run where they may not stay
    /// Whether a rank has ended well: nobody is added to those that are left.
    bool is_finishing() const { return is_finishing_; }
    bool is_leaving(HostId host) const { return hosts_[host].state == State::leaving; }
    /// Whether a process of it has a rank, and has not ended.
    bool has_ranks(HostId host) const { return !living(host).empty(); }
    /// Hosts that are left alone, and until when.
    std::vector<std::pair<HostId, Deadline>> cooling() const;
    const JobPolicy& policy() const { return policy_; }

    // For another process to go on with, as MessagePack: the job, and each of its hosts, which change one by one.
    Bytes save_job() const;
    Bytes save_host(HostId host) const;
    /// Goes on with what was saved, in a machine that has only its policy. Deadlines begin anew, and what was prepared
    /// is given up. \param newcomers_wait  for hosts that are not back by then
    /// Errc: invalid_input
    Result<void> restore(std::string_view job, const std::vector<std::string>& hosts, Deadline now,
                         std::chrono::milliseconds newcomers_wait);

    /// What save_job() saves.
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("phase", m.phase_), f("generation", m.generation_), f("world", m.world_);
        f("resets", m.resets_), f("failures", m.failures_);
        f("rank_failures", m.rank_failures_), f("first_size", m.first_size_);
        f("finishing", m.is_finishing_), f("done", m.one_is_done_), f("lost", m.one_is_lost_);
        f("asked", m.asked_), f("warned", m.warned_), f("failure", m.failure_);
        f("host_was_lost", m.host_was_lost_), f("severed", m.connections_reset_);
        f("notified", m.notified_), f("roll", m.last_query_);
    }

private:
    enum class State : std::uint8_t {
        absent,
        coming,   ///< its agent is being started
        ready,    ///< its agent is there
        cooling,  ///< it is left alone for a while
        leaving,  ///< it was released, and is not done yet
    };
    /// What all hosts have together.
    struct Sums {
        std::uint32_t coming = 0;  ///< hosts that are listed, and whose agents are being started
        std::uint32_t ending_ranks = 0;  ///< hosts
        std::uint32_t open = 0;          ///< slots in which a rank could run now, or does
        std::uint32_t living = 0;        ///< processes; of these:
        std::uint32_t draining = 0;      ///< in slots that are not listed any more
        std::uint32_t asking = 0;        ///< want a rank in the next world
        std::uint32_t rejoining = 0;     ///< can go on in another world
        std::uint32_t keepable = 0;      ///< can do so from where they are
        std::uint32_t prepared = 0;      ///< processes
        std::uint32_t held = 0;          ///< of these, as far as they are to come

        bool operator==(const Sums&) const = default;
        Sums& operator+=(const Sums& other) {
            for (const auto member : kMembers) this->*member += other.*member;
            return *this;
        }
        Sums& operator-=(const Sums& other) {
            for (const auto member : kMembers) this->*member -= other.*member;
            return *this;
        }
        static const std::array<std::uint32_t Sums::*, 10> kMembers;
    };
    struct Process {
        bool lives = false;     ///< it has a rank in the present world, and has not ended
        bool early = false;     ///< it has been there before that world
        bool prepared = false;  ///< it was started for the next one
        bool ending = false;    ///< it was told to end, and has not yet
        bool supports_rejoin = false, held_at_start = false, rendezvoused = false,
             wants_rank = false;  ///< see RejoinState
        /// Until they have met in a world, Horovod would not survive the loss of a peer.
        bool is_keepable() const { return supports_rejoin && (rendezvoused || wants_rank); }

        template <class Self, class F>
        static void fields(Self& m, F&& f) {
            f("lives", m.lives), f("early", m.early), f("prepared", m.prepared);
            f("ending", m.ending), f("capable", m.supports_rejoin), f("gated", m.held_at_start);
            f("settled", m.rendezvoused), f("waiting", m.wants_rank);
        }
    };
    struct Slot {
        Process process{};
        bool listed = true;          ///< else its process, if it has one, ends with the world
        std::uint32_t failures = 0;  ///< in a row
        std::uint32_t closings = 0;
        std::optional<Deadline> closed_until{};
        Deadline ranked_since{};  ///< since when its process has had a rank
        bool is_open() const { return listed && !closed_until; }

        template <class Self, class F>
        static void fields(Self& m, F&& f) {
            f("process", m.process), f("listed", m.listed), f("failures", m.failures);
            f("closings", m.closings);
        }
    };
    struct Host {
        State state = State::absent;
        std::vector<Slot> slots{};
        std::vector<SlotIndex>
            ranked{};  ///< places that have ranks of the world, in the order of these
        bool is_listed() const { return std::ranges::any_of(slots, &Slot::listed); }
        std::uint64_t first_world = 0;         ///< its first world since it has joined; 0: none yet
        Deadline ranked_since{};               ///< since when it is in worlds
        std::uint64_t order = 0;               ///< among those without one
        bool is_ending_ranks = false;          ///< it was told to, and has not answered
        std::uint32_t failures = 0;            ///< in a row
        std::uint32_t rank_failures = 0;       ///< of its ranks, in a row, with --refill never
        std::optional<Deadline> cool_until{};  ///< while it is left alone
        Sums sums() const;

        template <class Self, class F>
        static void fields(Self& m, F&& f) {
            f("state", m.state), f("slots", m.slots), f("seated", m.first_world),
                f("order", m.order);
            f("ending_ranks", m.is_ending_ranks), f("failures", m.failures);
        }
    };
    /// A rank that has failed, until it is known whether that was because of a lost host.
    struct Failure {
        HostId host{};
        SlotIndex place{};
        bool own_fault = false;
        bool has_worked = false;  ///< for so long that what failed there before is forgiven
        std::string why{};

        template <class Self, class F>
        static void fields(Self& m, F&& f) {
            f("host", m.host), f("place", m.place), f("own_fault", m.own_fault), f("why", m.why);
            f("has_worked", m.has_worked);
        }
    };
    enum class With : std::uint8_t { survivors, newcomers };

    Slot& slot_at(HostId host, SlotIndex place) {
        return hosts_[host].slots[std::to_underlying(place)];
    }
    const Slot& slot_at(HostId host, SlotIndex place) const {
        return hosts_[host].slots[std::to_underlying(place)];
    }
    bool is_whole() const;
    void go_on(Deadline now, std::chrono::milliseconds newcomers_wait);
    std::vector<SlotIndex> living(HostId host) const;
    const Sums& sums() const { return hosts_.sums(); }
    void set_ranked();
    template <class Do>
    void each_process(Do apply);
    /// Whether all processes can go on in another world.
    bool is_keepable() const { return any_lives() && sums().keepable == sums().living; }
    std::vector<RankAssignment> plan(With with) const;
    std::optional<HostOffer> offer_of(HostId host, With with) const;
    void keep_spares(std::vector<HostOffer>& hosts) const;
    std::uint32_t ranks_wanted() const;

    Meaning ranked_ended(const Process& process, const Failure& failure, const RankEnd& how,
                         Deadline now);
    void ended_well(bool was_met, Deadline now);
    bool any_lives() const { return sums().living > 0; }
    bool all_ask() const { return any_lives() && sums().asking == sums().living; }
    void nobody_lives(Deadline now);
    void lose(const std::string& why, Deadline now);
    void pause(std::string why, Deadline now);
    bool all_paused() const { return sums().ending_ranks == 0; }
    void settle(Deadline now);
    bool has_others() const;
    void blame(const Failure& failure, Deadline now);
    void collect(Deadline now);
    void gather(Deadline now);
    void go_on_as_few(Deadline now);
    void notify();
    void tick_collecting(Deadline now);
    void end_who_does_not_ask();
    bool prepare(Deadline now);
    void give_up_prepared(Deadline now);
    bool is_prepared() const;
    void abandon_prepared();
    void aim(std::vector<RankAssignment> world);
    void call(std::vector<RankAssignment> world);
    void look(Deadline now);
    bool waits_for_first() const;
    void begin(std::vector<RankAssignment> world, Deadline now);
    void call_more(Deadline now);
    void change(Deadline now);
    bool wants_change() const;
    void tick_running(Deadline now);
    void forget_plans();
    void reconsider(Deadline now);
    void come(HostId host);
    void release(HostId host);
    void release_delisted();
    bool may_reset();
    void end(End::Cause cause, std::string why, std::optional<HostId> host = std::nullopt);
    void end_too_few();
    void cool(Host& host, Deadline now);
    void close_slot(Slot& slot, Deadline now);
    bool leave_alone(const Failure& failure, Deadline now);
    void forgive();
    /// What failures of ranks are counted for: a slot, or a host, as its first slot, with --refill never.
    using Unit = std::pair<HostId, SlotIndex>;
    Unit unit_of(HostId host, SlotIndex place) const {
        return {host, policy_.refill == Refill::never ? SlotIndex{0} : place};
    }
    std::optional<Deadline> opens_at(HostId host, SlotIndex place) const;
    Deadline cooled(std::uint32_t times, Deadline now);
    bool is_coming() const { return policy_.hosts_enter || sums().coming > 0; }
    std::chrono::milliseconds patience() const;
    bool is_waited_for() const;
    void count_failure(const std::string& why);

    JobPolicy policy_;
    std::vector<RankAssignment> fixed_;
    std::minstd_rand random_;
    SummedPerHost<Host> hosts_;
    Phase phase_ = Phase::waiting;
    std::uint64_t generation_ = 0;
    std::uint32_t resets_ = 0;
    std::uint32_t failures_ = 0;
    std::uint32_t rank_failures_ = 0;
    std::uint32_t first_size_ = 0;  ///< of the first world
    std::vector<RankAssignment> world_;
    bool is_finishing_ = false;  ///< a rank has ended well: nobody is added to those that are left
    bool one_is_done_ = false;   ///< a rank of this world has ended well
    bool one_is_lost_ = false;   ///< one has not
    bool asked_ = false;         ///< who asks for a place may do so because of us
    bool warned_ = false;        ///< who ends may do so to start again
    Deadline began_{};           ///< the world
    std::optional<Deadline> ended_;   ///< it is over: its ranks are ended, or ask for their places
    std::optional<Failure> failure_;  ///< the first in this generation
    bool host_was_lost_ = false;      ///< in this generation: ranks may have failed because of it
    std::uint32_t own_faults_ = 0;    ///< in a row
    std::map<Unit, std::uint32_t> at_fault_;  ///< and how often
    std::optional<Unit> same_unit_;           ///< of all of them; else none
    /// The next world: processes are prepared for it, or asked to commit.
    std::vector<RankAssignment> target_;
    std::size_t fresh_in_target_ = 0;       ///< processes that are to be started for it
    bool connections_reset_ = false;        ///< a loss has ended the connections of this world
    bool notified_ = false;                 ///< processes were told that hosts have changed
    std::uint64_t last_query_ = 0;          ///< number of the last query_commit
    std::set<HostId> unanswered_;           ///< who has not answered it
    std::optional<Deadline> rejoin_until_;  ///< for processes to ask for a place
    std::optional<Deadline> refill_until_;  ///< with Refill::wait: for a new process
    std::optional<Deadline> waiting_since_;
    std::optional<Deadline> call_until_;      ///< the next world waits for more until then
    std::optional<Deadline> warned_until_;    ///< ranks have been told, and are ended then
    std::optional<Deadline> prepared_until_;  ///< for processes that join to be there
    std::optional<Deadline> replaced_until_;  ///< hosts that go wait for prepared processes
    Orders orders_;
};

}  // namespace dtrun
