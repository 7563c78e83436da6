#pragma once

#include "base/clock.h"
#include "base/numbered.h"
#include "rendezvous/membership/world.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun {

struct MembershipOptions {
    std::uint32_t ranks_min = 1;  ///< at least 1
    std::uint32_t ranks_max = 1;  ///< at least ranks_min; the same: a static job
    std::chrono::milliseconds join_timeout{600'000};  ///< for ranks_min ranks to come together
    std::chrono::milliseconds last_call{2'000};       ///< for more ranks, once there are ranks_min
    std::chrono::milliseconds return_limit{
        kHeartbeatTimeout};                ///< for a member to come back after its connection broke
    bool describe_nodes = false;           ///< assignments list all hosts with ranks
    std::vector<std::uint32_t> allowed{};  ///< numbers of ranks, ascending; empty: any
    std::chrono::milliseconds elastic_timeout{600'000};  ///< for ranks_min ranks to be there again
    std::optional<std::uint32_t> resets_max{};  ///< how many generations may follow the first
    /// How many ranks may fail, with all starting again each time; unset: who has one leaves.
    std::optional<std::uint32_t> restarts_max{};
};

/// The members and the generation of a job: a pure state machine that turns events into orders. No
/// sockets, no clock.
///
/// Survivors of a generation keep their order in the next. A job that is static ends when a member
/// is lost; an elastic one begins a new generation, once there are enough ranks for it.
class Membership {
public:
    explicit Membership(MembershipOptions options);

    // Events.
    /// \param node_rank  its wanted place among those that get their first ranks together
    void enter(MemberId id, Member member, Deadline now,
               std::optional<std::uint32_t> node_rank = std::nullopt);
    /// A member has reconnected; orders that it may have missed are given again.
    /// \param generation  generation whose ranks it runs
    /// \param accepted    proposed generation that it has accepted
    void come_back(MemberId id, std::uint64_t generation, std::uint64_t accepted, Deadline now);
    void accept(MemberId id, std::uint64_t generation, Deadline now);
    void leave(MemberId id, bool finished, const std::string& why, Deadline now);
    /// A rank of a member has failed, which stays: all start again, or the job ends. Failures that the loss of
    /// a member explains do not count.
    void rank_failed(MemberId id, std::uint64_t generation, const std::string& why, Deadline now);
    void lost(MemberId id, const std::string& why, Deadline now);
    void away(MemberId id, Deadline now);  ///< its connection broke: it may come back
    void tick(Deadline now);               ///< at next_deadline(), or any time

    // Orders.
    struct Ended {
        bool finished = false;
        std::string why;
    };
    struct Orders {  ///< carry out fences_failed, then begun, before the others
        std::vector<std::pair<MemberId, Assign>> assignments;
        std::vector<std::pair<MemberId, Propose>> proposals;
        std::optional<std::uint32_t> begun;        ///< a generation has begun, with this many ranks
        std::optional<std::string> fences_failed;  ///< why: a rank will come to no more of them
        std::optional<Ended> ended;                ///< the job has ended
    };
    Orders take_orders() { return std::exchange(orders_, {}); }
    Deadline next_deadline() const;

    // State.
    enum class Phase : std::uint8_t {
        gathering,  ///< no ranks run: too few members
        running,    ///< a generation's ranks run
        proposing,  ///< members are ending the generation's ranks
        finishing,  ///< some members have finished: no generation will follow
        ended,
    };
    Phase phase() const { return phase_; }
    std::uint64_t generation() const { return generation_; }  ///< 0 until the first one begins
    std::uint32_t world_size() const { return world_size_; }  ///< ranks of the generation
    bool has(MemberId id) const { return seats_.contains(id); }
    bool has_node(std::uint32_t node_rank) const;  ///< whether a member has entered as this one
    const MembershipOptions& options() const { return options_; }

    struct Seat {
        Member member;
        std::uint64_t order = 0;      ///< number of arrival; newcomers get ranks by it
        std::vector<RankSlot> ranks;  ///< its ranks in the current generation; empty: a spare
        std::uint32_t node_rank = 0;  ///< index among the members with ranks
        std::uint64_t accepted = 0;   ///< proposed generation that it has accepted
        std::optional<Deadline> away_until;
    };
    const std::map<MemberId, Seat>& seats() const { return seats_; }

    /// What a membership that goes on in another process must know.
    struct State {
        Phase phase = Phase::gathering;
        std::uint64_t generation = 0;
        std::map<MemberId, Seat> seats;
        /// What all members are told of the generation, of which some may have left.
        Assign common{};
        std::string failure{};  ///< that led to the proposal; empty: none
        std::uint32_t restarts = 0;
    };
    State state() const { return {phase_, generation_, seats_, common_, failure_, restarts_}; }
    /// Goes on from a state: all members are away, and have `limit` to return.
    void restore(State state, Deadline now, std::chrono::milliseconds limit);

private:
    std::uint32_t slots() const;
    std::uint32_t next_size() const;
    bool can_grow() const { return has_spares() && next_size() > world_size_; }
    std::vector<MemberId> in_order() const;
    void remove(MemberId id, const std::string& why, bool failed, Deadline now);
    void ended_ranks(const Seat& seat);
    void propose(const std::string& why, Deadline now);
    void gather(Deadline now);
    void look(Deadline now);
    void begin();
    void end(bool finished, std::string why);
    bool all_accepted() const;
    bool has_spares() const;
    void seat_ranks(const std::vector<MemberId>& order);
    Assign assignment(MemberId id) const;
    void describe_generation();
    std::vector<const Member*> members() const;

    MembershipOptions options_;
    std::map<MemberId, Seat> seats_;
    Phase phase_ = Phase::gathering;
    std::uint64_t generation_ = 0;
    std::uint32_t world_size_ = 0;
    std::uint64_t arrivals_ = 0;
    std::uint64_t proposed_ = 0;
    std::string failure_;         ///< as State::failure
    std::uint32_t restarts_ = 0;  ///< because of failed ranks
    bool is_blamed_ = false;      ///< a failed rank is the cause of the proposal
    /// A failed rank that ends the job, unless a lost member turns out to be the cause.
    struct Failing {
        std::string why;
        Deadline until;
    };
    std::optional<Failing> failing_;
    Assign common_;  ///< the part of assignments that is the same for all members
    std::optional<Deadline> join_until_;
    std::optional<Deadline> last_call_until_;
    Orders orders_;
};

}  // namespace dtrun
