#pragma once

#include "base/clock.h"
#include "rendezvous/heartbeat.h"
#include "rendezvous/member_messages.h"
#include "rendezvous/rank_messages.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun {

/// Names a member for as long as it takes part, over reconnects; never 0.
using MemberId = std::uint64_t;

/// Slots on one host that take part in a job together.
struct Member {
    std::string name;  ///< of the host, for people
    std::uint32_t slots = 0;
    std::string peer_address;     ///< its end of the connection, as the server sees it; numeric
    std::string server_address;   ///< the server's end
    std::uint16_t free_port = 0;  ///< for MASTER_PORT, should it get rank 0; others follow it
    std::vector<std::string> addresses{};  ///< all that it has; numeric
};

struct MembershipOptions {
    std::uint32_t ranks_min = 1;  ///< at least 1
    std::uint32_t ranks_max = 1;  ///< at least ranks_min; the same: a static job
    std::chrono::milliseconds join_timeout{600'000};  ///< for ranks_min ranks to come together
    std::chrono::milliseconds last_call{2'000};       ///< for more, once there are ranks_min
    std::chrono::milliseconds return_limit{
        kHeartbeatTimeout};       ///< for a member whose connection broke
    bool describe_nodes = false;  ///< assignments say where all hosts with ranks are
    /// Fixed ranks, by member in order of their ids; empty: as many as slots, one member after the
    /// other.
    std::vector<std::vector<RankSlot>> plan;
};

/// Who belongs to a job, and which generation it is: a pure state machine, events in, orders out. No
/// sockets, no clock.
///
/// Survivors of a generation keep their order in the next. A job that is static ends when a member
/// is lost; an elastic one begins a new generation, once there are enough ranks for it.
class Membership {
public:
    explicit Membership(MembershipOptions options);

    // What happened.
    void enter(MemberId id, Member member, Deadline now);
    /// The connection of a member was made anew; what it may have missed is ordered again.
    /// \param generation  whose ranks it runs
    /// \param accepted    proposal that it has accepted
    void come_back(MemberId id, std::uint64_t generation, std::uint64_t accepted);
    void accept(MemberId id, std::uint64_t generation, Deadline now);
    void leave(MemberId id, bool finished, const std::string& why, Deadline now);
    void lost(MemberId id, const std::string& why, Deadline now);
    /// A rank has failed, and all are to start again: the members end their ranks first.
    void restart(const std::string& why, Deadline now);
    void away(MemberId id, Deadline now);  ///< its connection broke: it may come back
    void tick(Deadline now);               ///< at next_deadline(), or any time

    // What to do.
    struct Ended {
        bool finished = false;
        std::string why;
    };
    struct Orders {  ///< to be carried out in this order
        std::vector<std::pair<MemberId, Assign>> assignments;
        std::vector<std::pair<MemberId, Propose>> proposals;
        std::optional<std::uint32_t> begun;        ///< a generation, with so many ranks
        std::optional<std::string> fences_failed;  ///< of the generation: a rank of it has ended
        std::optional<Ended> ended;                ///< the job
    };
    Orders take_orders() { return std::exchange(orders_, {}); }
    Deadline next_deadline() const;

    // What is.
    enum class Phase : std::uint8_t {
        gathering,  ///< no generation: members are missing
        running,    ///< a generation
        proposing,  ///< members are ending its ranks
        finishing,  ///< some members have finished: no generation will follow
        ended,
    };
    Phase phase() const { return phase_; }
    std::uint64_t generation() const { return generation_; }  ///< 0 until the first one begins
    std::uint32_t world_size() const { return world_size_; }  ///< of the generation
    bool has(MemberId id) const { return seats_.contains(id); }
    const MembershipOptions& options() const { return options_; }

    struct Seat {
        Member member;
        std::uint64_t order = 0;      ///< of arrival; survivors are in front of newcomers by it
        std::vector<RankSlot> ranks;  ///< of the current generation; empty: a spare
        std::uint32_t node_rank = 0;  ///< among the members with ranks
        std::uint64_t accepted = 0;   ///< proposal
        std::optional<Deadline> away_until;
    };
    const std::map<MemberId, Seat>& seats() const { return seats_; }

    /// Goes on where a state was kept: everybody is away, for `limit`.
    void restore(Phase phase, std::uint64_t generation, std::map<MemberId, Seat> seats,
                 Deadline now, std::chrono::milliseconds limit);

private:
    std::uint32_t slots() const;
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
    std::string master_address(const Member& first) const;
    std::vector<std::string> peer_addresses() const;

    MembershipOptions options_;
    std::map<MemberId, Seat> seats_;
    Phase phase_ = Phase::gathering;
    std::uint64_t generation_ = 0;
    std::uint32_t world_size_ = 0;
    std::uint64_t arrivals_ = 0;
    std::uint64_t proposed_ = 0;
    std::string failure_;  ///< because of which a generation is proposed; empty: there is none
    Assign common_;        ///< what all members are told of the generation
    std::optional<Deadline> join_until_;
    std::optional<Deadline> last_call_until_;
    Orders orders_;
};

}  // namespace dtrun
