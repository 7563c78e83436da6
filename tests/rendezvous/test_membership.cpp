#include "rendezvous/membership/membership.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <algorithm>
#include <random>
#include <set>

namespace dtrun {
namespace {

using std::chrono::milliseconds;
using Phase = Membership::Phase;

const Deadline kStart{};

constexpr MemberId operator""_member(unsigned long long number) {
    return MemberId{number};
}

Member host(std::uint32_t number, std::uint32_t slots) {
    return {"s" + std::to_string(number),
            slots,
            "10.0.0." + std::to_string(number),
            "10.0.0.100",
            static_cast<std::uint16_t>(20'000 + number),
            {}};
}

MembershipOptions sizes(std::uint32_t min, std::uint32_t max) {
    MembershipOptions options;
    options.ranks_min = min;
    options.ranks_max = max;
    return options;
}

/// Ranks of each member, in the order of `assignments`.
std::vector<std::vector<std::uint32_t>> ranks_of(const Membership::Orders& orders) {
    std::vector<std::vector<std::uint32_t>> all;
    for (const auto& [id, assign] : orders.assignments) {
        all.emplace_back();
        for (const RankSlot& slot : assign.ranks)
            all.back().push_back(std::to_underlying(slot.rank));
    }
    return all;
}

}  // namespace

TEST_CASE("rank 0's host is told who may connect, and all hosts where the others are",
          "[membership]") {
    MembershipOptions options = sizes(3, 3);
    options.describe_nodes = true;
    Membership membership(options);
    Member first = host(1, 2);
    first.addresses = {"10.0.0.1", "192.168.0.1", "127.0.0.1"};
    membership.enter(11_member, first, kStart);
    membership.enter(12_member, host(2, 1), kStart);
    const auto begun = membership.take_orders();
    REQUIRE(begun.assignments.size() == 2);
    const Assign& assign = begun.assignments[0].second;
    CHECK(assign.peers == std::vector<std::string>{"10.0.0.1", "10.0.0.2", "192.168.0.1"});
    CHECK(begun.assignments[1].second.peers.empty());  // only rank 0's host serves
    REQUIRE(assign.nodes.size() == 2);
    CHECK(assign.nodes[1].address == "10.0.0.2");
    CHECK(assign.nodes[1].port == 20'003);  // behind MASTER_PORT
    CHECK(assign.nodes[0].ranks == 2);
}

TEST_CASE("a static job begins when its slots have come, and not before", "[membership]") {
    Membership membership(sizes(4, 4));
    membership.enter(11_member, host(1, 2), kStart);
    CHECK(membership.take_orders().assignments.empty());
    CHECK(membership.generation() == 0);
    membership.enter(12_member, host(2, 2), kStart);
    const auto orders = membership.take_orders();
    CHECK(membership.generation() == 1);
    CHECK(orders.begun == 4);
    CHECK(ranks_of(orders) == std::vector<std::vector<std::uint32_t>>{{0, 1}, {2, 3}});
    const Assign& second = orders.assignments[1].second;
    CHECK(second.node_rank == 1);
    CHECK(second.node_count == 2);
    CHECK(second.master_address == "10.0.0.1");
    CHECK(second.master_port == 20'001);
    CHECK(second.ranks[0].cross_rank == 1);
    CHECK(second.ranks[0].cross_size == 2);
}

TEST_CASE("rank 0's host on the server's machine is named by an address that others have reached",
          "[membership]") {
    Membership membership(sizes(2, 2));
    Member here = host(1, 1);
    here.peer_address = "127.0.0.1";
    membership.enter(1_member, here, kStart);
    membership.enter(2_member, host(2, 1), kStart);
    CHECK(membership.take_orders().assignments[0].second.master_address == "10.0.0.100");
}

TEST_CASE("an elastic job begins with fewer ranks after the last call", "[membership]") {
    Membership membership(sizes(2, 8));
    membership.enter(1_member, host(1, 2), kStart);
    CHECK(membership.take_orders().assignments.empty());
    CHECK(membership.next_deadline() == kStart + milliseconds(2'000));
    membership.enter(2_member, host(2, 2), kStart + milliseconds(500));
    membership.tick(kStart + milliseconds(1'999));
    CHECK(membership.generation() == 0);
    membership.tick(kStart + milliseconds(2'000));
    CHECK(membership.take_orders().begun == 4);
}

TEST_CASE("a daemon's job has only numbers of ranks that are allowed", "[membership]") {
    MembershipOptions options = sizes(2, 8);
    options.allowed = {2, 4, 8};
    Membership membership(options);
    for (const unsigned long long number : {1, 2, 3})
        membership.enter(MemberId{number}, host(static_cast<std::uint32_t>(number), 2), kStart);
    membership.tick(kStart + milliseconds(2'000));
    CHECK(membership.take_orders().begun == 4);  // of 6: the third is a spare
    CHECK(membership.seats().at(3_member).ranks.empty());
    membership.lost(1_member, "gone", kStart + milliseconds(3'000));
    membership.accept(2_member, 2, kStart + milliseconds(3'000));
    CHECK(membership.take_orders().begun == 4);
    membership.enter(4_member, host(4, 2), kStart + milliseconds(4'000));
    CHECK(membership.next_deadline() == Deadline::max());  // 6 are no more than 4
    membership.enter(5_member, host(5, 2), kStart + milliseconds(4'000));
    membership.tick(kStart + milliseconds(6'000));
    CHECK(membership.phase() == Phase::proposing);
    membership.accept(2_member, 3, kStart + milliseconds(6'000));
    membership.accept(3_member, 3, kStart + milliseconds(6'000));
    CHECK(membership.take_orders().begun == 8);
}

TEST_CASE("members that say which node they are get their ranks in that order", "[membership]") {
    Membership membership(sizes(6, 6));
    membership.enter(1_member, host(1, 2), kStart, 2);
    membership.enter(2_member, host(2, 2), kStart);
    CHECK(membership.has_node(2));
    CHECK_FALSE(membership.has_node(0));
    membership.enter(3_member, host(3, 2), kStart, 0);
    CHECK(ranks_of(membership.take_orders()) ==
          std::vector<std::vector<std::uint32_t>>{{2, 3}, {4, 5}, {0, 1}});
}

TEST_CASE("failed ranks restart all as often as the job allows, and then end it", "[membership]") {
    MembershipOptions options = sizes(2, 2);
    options.restarts_max = 1;
    Membership membership(options);
    membership.enter(1_member, host(1, 1), kStart);
    membership.enter(2_member, host(2, 1), kStart);
    membership.rank_failed(2_member, 1, "rank 1 exited with code 7", kStart);
    membership.rank_failed(1_member, 1, "rank 0 exited with code 1",
                           kStart);  // because of the other
    auto orders = membership.take_orders();
    REQUIRE(orders.proposals.size() == 2);
    CHECK(orders.proposals[0].second.why == "s2: rank 1 exited with code 7");
    membership.accept(1_member, 2, kStart);
    membership.accept(2_member, 2, kStart);
    CHECK(membership.take_orders().begun == 2);
    membership.rank_failed(2_member, 1, "late news", kStart);
    CHECK(membership.phase() == Phase::running);
    membership.rank_failed(2_member, 2, "rank 1 exited with code 8", kStart);
    orders = membership.take_orders();
    REQUIRE(orders.ended.has_value());
    CHECK_FALSE(orders.ended->finished);
    CHECK(orders.ended->why == "s2: rank 1 exited with code 8");
}

TEST_CASE("a failed rank ends an elastic job only if no member turns out to be lost",
          "[membership]") {
    MembershipOptions options = sizes(1, 3);
    options.restarts_max = 0;
    const bool is_lost = GENERATE(true, false);
    Membership membership(options);
    for (const unsigned long long number : {1, 2, 3})
        membership.enter(MemberId{number}, host(static_cast<std::uint32_t>(number), 1), kStart);
    membership.rank_failed(2_member, 1, "rank 1 exited with code 1", kStart);
    CHECK(membership.phase() == Phase::running);
    if (is_lost) membership.lost(3_member, "silent", kStart + milliseconds(3'000));
    membership.tick(kStart + milliseconds(10'000));
    CHECK(membership.phase() == (is_lost ? Phase::proposing : Phase::ended));
}

TEST_CASE("the loss of a member costs no restart, also if its peers failed first", "[membership]") {
    MembershipOptions options = sizes(1, 3);
    options.restarts_max = 1;
    Membership membership(options);
    for (const unsigned long long number : {1, 2, 3})
        membership.enter(MemberId{number}, host(static_cast<std::uint32_t>(number), 1), kStart);
    membership.rank_failed(2_member, 1, "rank 1 exited with code 1", kStart);
    CHECK(membership.state().restarts == 1);
    membership.lost(3_member, "silent", kStart + milliseconds(3'000));
    CHECK(membership.state().restarts == 0);
    membership.accept(1_member, 2, kStart);
    membership.accept(2_member, 2, kStart);
    CHECK(membership.take_orders().begun == 2);
}

TEST_CASE("a daemon's job changes no more often than its limit says", "[membership]") {
    MembershipOptions options = sizes(1, 3);
    options.resets_max = 1;
    Membership membership(options);
    for (const unsigned long long number : {1, 2, 3})
        membership.enter(MemberId{number}, host(static_cast<std::uint32_t>(number), 1), kStart);
    membership.lost(3_member, "gone", kStart);
    membership.accept(1_member, 2, kStart);
    membership.accept(2_member, 2, kStart);
    CHECK(membership.take_orders().begun == 2);
    membership.lost(2_member, "gone", kStart);
    const auto orders = membership.take_orders();
    REQUIRE(orders.ended.has_value());
    CHECK(orders.ended->why == "s2: gone; the job has changed 1 times (--reset-limit)");
}

TEST_CASE("a daemon's job that has lost too many waits as long as it was told to", "[membership]") {
    MembershipOptions options = sizes(2, 3);
    options.elastic_timeout = milliseconds(5'000);
    Membership membership(options);
    for (const unsigned long long number : {1, 2, 3})
        membership.enter(MemberId{number}, host(static_cast<std::uint32_t>(number), 1), kStart);
    membership.lost(3_member, "gone", kStart);
    membership.lost(2_member, "gone", kStart);
    membership.accept(1_member, 2, kStart);
    CHECK(membership.phase() == Phase::gathering);
    CHECK(membership.next_deadline() == kStart + milliseconds(5'000));
    membership.tick(kStart + milliseconds(5'000));
    const auto orders = membership.take_orders();
    REQUIRE(orders.ended.has_value());
    CHECK(orders.ended->why == "1 slots are there, and 2 are needed, for 5 s (--elastic-timeout)");
}

TEST_CASE("a job whose ranks do not come together ends, and says how many there were",
          "[membership]") {
    Membership membership(sizes(4, 4));
    membership.enter(1_member, host(1, 2), kStart);
    membership.tick(kStart + milliseconds(600'000));
    const auto orders = membership.take_orders();
    REQUIRE(orders.ended.has_value());
    CHECK_FALSE(orders.ended->finished);
    CHECK(orders.ended->why == "2 of 4 ranks came within 600 s (--start-timeout)");
}

TEST_CASE("survivors of a lost host keep their order, once all have ended their ranks",
          "[membership]") {
    Membership membership(sizes(2, 6));
    for (std::uint32_t i = 1; i <= 3; ++i) membership.enter(MemberId{i}, host(i, 2), kStart);
    REQUIRE(membership.take_orders().begun == 6);
    membership.lost(1_member, "gone", kStart);
    auto orders = membership.take_orders();
    REQUIRE(orders.proposals.size() == 2);
    CHECK(orders.proposals[0].second.generation == 2);
    CHECK(orders.proposals[0].second.why == "s1: gone");
    membership.accept(3_member, 2, kStart);
    CHECK(membership.take_orders().assignments.empty());
    membership.accept(2_member, 2, kStart);
    orders = membership.take_orders();
    CHECK(membership.generation() == 2);
    REQUIRE(orders.assignments.size() == 2);
    CHECK(orders.assignments[0].first == 2_member);
    CHECK(ranks_of(orders) == std::vector<std::vector<std::uint32_t>>{{0, 1}, {2, 3}});
}

TEST_CASE("newcomers are let in together after the last call, behind the survivors",
          "[membership]") {
    Membership membership(sizes(2, 8));
    membership.enter(9_member, host(9, 2), kStart);
    membership.tick(kStart + milliseconds(2'000));
    REQUIRE(membership.take_orders().begun == 2);
    membership.enter(1_member, host(1, 2), kStart + milliseconds(5'000));
    membership.enter(2_member, host(2, 2), kStart + milliseconds(6'000));
    CHECK(membership.take_orders().proposals.empty());
    membership.tick(kStart + milliseconds(7'000));
    REQUIRE(membership.take_orders().proposals.size() == 1);
    membership.accept(9_member, 2, kStart + milliseconds(7'100));
    const auto orders = membership.take_orders();
    CHECK(orders.begun == 6);
    for (const auto& [id, assign] : orders.assignments)
        if (id == 9_member) CHECK(assign.ranks.front().rank == Rank{0});
}

TEST_CASE("a newcomer that goes again before the last call costs nobody a restart",
          "[membership]") {
    Membership membership(sizes(2, 8));
    membership.enter(1_member, host(1, 2), kStart);
    membership.tick(kStart + milliseconds(2'000));
    REQUIRE(membership.take_orders().begun == 2);
    membership.enter(2_member, host(2, 2), kStart + milliseconds(5'000));
    membership.leave(2_member, false, "interrupted", kStart + milliseconds(5'500));
    membership.tick(kStart + milliseconds(9'000));
    const auto orders = membership.take_orders();
    CHECK(orders.proposals.empty());
    CHECK_FALSE(orders.fences_failed.has_value());
    CHECK(membership.phase() == Phase::running);
}

TEST_CASE("fences fail with the member whose ranks will not come to them", "[membership]") {
    for (const bool finished : {true, false}) {
        Membership membership(sizes(2, 6));
        for (std::uint32_t i = 1; i <= 3; ++i) membership.enter(MemberId{i}, host(i, 2), kStart);
        membership.take_orders();
        if (finished)
            membership.leave(2_member, true, "", kStart);
        else
            membership.lost(2_member, "last heard 3.0 s ago", kStart);
        CHECK(membership.take_orders().fences_failed ==
              (finished ? "s2 has finished" : "s2: last heard 3.0 s ago"));
    }
}

TEST_CASE("fences fail when a member goes on to the next generation, and others wait for it",
          "[membership]") {
    Membership membership(sizes(2, 6));
    for (std::uint32_t i = 1; i <= 2; ++i) membership.enter(MemberId{i}, host(i, 2), kStart);
    membership.tick(kStart + milliseconds(2'000));
    membership.enter(3_member, host(3, 2), kStart + milliseconds(5'000));
    membership.tick(kStart + milliseconds(7'000));
    REQUIRE(membership.phase() == Membership::Phase::proposing);
    CHECK_FALSE(membership.take_orders().fences_failed.has_value());
    membership.accept(1_member, 2, kStart + milliseconds(7'000));
    CHECK(membership.take_orders().fences_failed == "s1 has gone on to generation 2");
    membership.accept(2_member, 2, kStart + milliseconds(7'001));
    CHECK(membership.take_orders().begun == 6);
}

TEST_CASE("slots beyond the maximum are spares, and take a lost host's place", "[membership]") {
    Membership membership(sizes(2, 3));
    membership.enter(1_member, host(1, 2), kStart);
    membership.enter(2_member, host(2, 2), kStart);
    CHECK(membership.take_orders().begun == 3);
    membership.enter(3_member, host(3, 2), kStart);
    CHECK(membership.take_orders().proposals.empty());
    membership.lost(1_member, "gone", kStart);
    membership.accept(2_member, 2, kStart);
    const auto orders = membership.take_orders();
    CHECK(orders.begun == 3);
    CHECK(ranks_of(orders) == std::vector<std::vector<std::uint32_t>>{{0, 1}, {2}});
}

TEST_CASE("a static job ends with the host that it loses", "[membership]") {
    Membership membership(sizes(4, 4));
    membership.enter(1_member, host(1, 2), kStart);
    membership.enter(2_member, host(2, 2), kStart);
    membership.take_orders();
    membership.lost(2_member, "last heard 3.0 s ago", kStart);
    const auto orders = membership.take_orders();
    REQUIRE(orders.ended.has_value());
    CHECK(orders.ended->why == "s2: last heard 3.0 s ago");
}

TEST_CASE("a member that comes back in time is asked for nothing, one that does not is lost",
          "[membership]") {
    Membership membership(sizes(2, 4));
    membership.enter(1_member, host(1, 2), kStart);
    membership.enter(2_member, host(2, 2), kStart);
    membership.take_orders();
    membership.away(1_member, kStart);
    CHECK(membership.next_deadline() == kStart + milliseconds(3'000));
    membership.come_back(1_member, 1, 0, kStart);
    membership.tick(kStart + milliseconds(4'000));
    auto orders = membership.take_orders();
    CHECK(orders.proposals.empty());
    CHECK(orders.assignments.empty());

    membership.away(1_member, kStart + milliseconds(5'000));
    membership.tick(kStart + milliseconds(8'000));
    CHECK(membership.take_orders().proposals.size() == 1);
}

TEST_CASE("a member that was away while a generation began is told again", "[membership]") {
    Membership membership(sizes(2, 6));
    for (std::uint32_t i = 1; i <= 3; ++i) membership.enter(MemberId{i}, host(i, 2), kStart);
    membership.take_orders();
    membership.lost(3_member, "gone", kStart);
    membership.take_orders();
    membership.away(1_member, kStart);
    membership.come_back(1_member, 1, 0, kStart);
    auto orders = membership.take_orders();
    REQUIRE(orders.proposals.size() == 1);
    CHECK(orders.proposals[0].second.generation == 2);
    membership.away(1_member, kStart);
    membership.come_back(1_member, 1, 2, kStart);
    membership.accept(2_member, 2, kStart);
    membership.accept(1_member, 2, kStart);
    membership.take_orders();
    membership.away(2_member, kStart);
    membership.come_back(2_member, 1, 2, kStart);
    orders = membership.take_orders();
    REQUIRE(orders.assignments.size() == 1);
    CHECK(orders.assignments[0].second.generation == 2);
}

TEST_CASE("a member that missed a generation does not hold up the next", "[membership]") {
    Membership membership(sizes(2, 6));
    for (std::uint32_t i = 1; i <= 3; ++i) membership.enter(MemberId{i}, host(i, 2), kStart);
    membership.away(1_member, kStart);
    REQUIRE(membership.generation() == 1);
    membership.take_orders();  // what it says to member 1 is lost
    membership.lost(3_member, "cut off", kStart);
    membership.accept(2_member, 2, kStart);
    CHECK(membership.phase() == Phase::proposing);
    membership.come_back(1_member, 0, 0, kStart);
    CHECK(membership.generation() == 2);
    const auto orders = membership.take_orders();
    CHECK(orders.assignments.size() == 2);
    CHECK(orders.proposals.empty());
}

TEST_CASE(
    "a job ends well when all members have finished, and badly when one fails after another "
    "has finished",
    "[membership]") {
    for (const bool well : {true, false}) {
        Membership membership(sizes(2, 4));
        membership.enter(1_member, host(1, 2), kStart);
        membership.enter(2_member, host(2, 2), kStart);
        membership.take_orders();
        membership.leave(1_member, true, "", kStart);
        CHECK(membership.phase() == Phase::finishing);
        CHECK_FALSE(membership.take_orders().ended.has_value());
        membership.leave(2_member, well, "rank 3 failed", kStart);
        const auto orders = membership.take_orders();
        REQUIRE(orders.ended.has_value());
        CHECK(orders.ended->finished == well);
        if (!well) CHECK(orders.ended->why == "s2: rank 3 failed");
    }
}

TEST_CASE("a job that finishes while a newcomer is let in is not run again", "[membership]") {
    enum class Other { finishes, had_ended_its_ranks, ends_its_ranks, was_away };
    for (const Other other :
         {Other::finishes, Other::had_ended_its_ranks, Other::ends_its_ranks, Other::was_away}) {
        Membership membership(sizes(1, 6));
        membership.enter(1_member, host(1, 2), kStart);
        membership.enter(2_member, host(2, 2), kStart);
        membership.tick(membership.next_deadline());
        membership.enter(3_member, host(3, 2), kStart);
        membership.tick(membership.next_deadline());
        REQUIRE(membership.phase() == Phase::proposing);
        REQUIRE(membership.take_orders().proposals.size() == 2);
        if (other == Other::had_ended_its_ranks) membership.accept(2_member, 2, kStart);
        membership.leave(1_member, true, "", kStart);  // it crosses the proposal
        if (other == Other::finishes) membership.leave(2_member, true, "", kStart);
        if (other == Other::ends_its_ranks) membership.accept(2_member, 2, kStart);
        if (other == Other::was_away) membership.come_back(2_member, 1, 2, kStart);
        const auto orders = membership.take_orders();
        CHECK(orders.assignments.empty());
        REQUIRE(orders.ended.has_value());
        CHECK(orders.ended->finished == (other == Other::finishes));
        if (!orders.ended->finished)
            CHECK(orders.ended->why ==
                  "s2 had ended its ranks for another generation when others finished");
    }
}

TEST_CASE("a job has not ended well when a member was lost before another finished",
          "[membership]") {
    Membership membership(sizes(1, 4));
    membership.enter(1_member, host(1, 2), kStart);
    membership.enter(2_member, host(2, 2), kStart);
    membership.take_orders();
    membership.lost(2_member, "last heard 3.0 s ago", kStart);
    REQUIRE(membership.phase() == Phase::proposing);
    membership.leave(1_member, true, "", kStart);
    const auto orders = membership.take_orders();
    REQUIRE(orders.ended.has_value());
    CHECK(orders.ended->why == "s2: last heard 3.0 s ago");
}

TEST_CASE("a job goes on in another process although some of its members have finished",
          "[membership]") {
    const MembershipOptions options = sizes(4, 4);
    Membership before(options);
    before.enter(1_member, host(1, 2), kStart);
    before.enter(2_member, host(2, 2), kStart);
    const auto begun = before.take_orders();
    before.leave(1_member, true, "", kStart);
    Membership after(options);
    Membership::State state = before.state();
    SECTION("with all that was known") {}
    SECTION("recorded without what members are told") {
        state.common = {};
    }
    after.restore(state, kStart, milliseconds(1'000));
    CHECK(after.world_size() == 4);
    after.come_back(2_member, 0, 0, kStart);  // its assignment was lost with the process
    const auto orders = after.take_orders();
    CHECK(ranks_of(orders) == std::vector<std::vector<std::uint32_t>>{{2, 3}});
    CHECK(orders.assignments[0].second.world_size == 4);
    if (state.common.generation != 0) {
        CHECK(orders.assignments[0].second.node_rank == 1);
        CHECK(orders.assignments[0].second.node_names == std::vector<std::string>{"s1", "s2"});
        CHECK(orders.assignments[0].second.master_address == "10.0.0.1");
    }
    after.leave(2_member, true, "", kStart);
    CHECK(after.take_orders().ended->finished);
}

TEST_CASE("the failure that led to a new generation is told after a restart, too", "[membership]") {
    Membership before(sizes(2, 4));
    before.enter(1_member, host(1, 2), kStart);
    before.enter(2_member, host(2, 2), kStart);
    before.take_orders();
    before.lost(1_member, "last heard 3.0 s ago", kStart);
    Membership after(sizes(2, 4));
    after.restore(before.state(), kStart, milliseconds(1'000));
    after.leave(2_member, true, "", kStart);
    const auto orders = after.take_orders();
    REQUIRE(orders.ended.has_value());
    CHECK(orders.ended->why == "s1: last heard 3.0 s ago");
}

// Members that come, are lost, break off, come back and finish at random, with every message late by
// a random time and those of broken connections lost; and the process with the membership is killed
// and another one goes on.
namespace {

struct SimulatedMember {
    std::uint64_t running = 0;  ///< generation
    std::uint64_t accepted = 0;
    std::set<Rank> ranks;
    bool connected = true;
    bool dead = false;
};

class MembershipSimulation {
public:
    explicit MembershipSimulation(unsigned seed, std::uint32_t min, std::uint32_t max)
        : random_(seed), max_(max), membership_(sizes(min, max)) {}

    void run(int steps) {
        for (int i = 0; i < steps && membership_.phase() != Phase::ended; ++i) {
            step();
            check();
        }
    }
    std::uint64_t generation() const { return last_generation_; }

private:
    struct Message {
        MemberId to{};
        std::optional<Propose> propose;
        std::optional<Assign> assign;
    };

    std::uint32_t up_to(std::uint32_t n) {
        return std::uniform_int_distribution<std::uint32_t>(0, n)(random_);
    }

    void step() {
        now_ += milliseconds(up_to(400));
        switch (up_to(11)) {
            case 0:
                if (members_.size() < 40) {
                    const MemberId id{++members_ever_};
                    members_[id];
                    membership_.enter(id, host(members_ever_ % 200, 1 + up_to(7)), now_);
                }
                break;
            case 1:
                if (SimulatedMember* member = any(); member != nullptr && up_to(5) == 0) {
                    member->dead = true;
                    member->ranks.clear();
                    membership_.lost(any_id_, "gone", now_);
                }
                break;
            case 2:
                if (SimulatedMember* member = any(); member != nullptr && member->connected) {
                    member->connected = false;
                    std::erase_if(wire_, [this](const Message& m) { return m.to == any_id_; });
                    membership_.away(any_id_, now_);
                }
                break;
            case 3:
                if (SimulatedMember* member = any();
                    member != nullptr && !member->connected && membership_.has(any_id_)) {
                    member->connected = true;
                    membership_.come_back(any_id_, member->running, member->accepted, now_);
                }
                break;
            case 4:
                if (up_to(9) == 0) go_on_elsewhere();
                break;
            case 5:
                if (SimulatedMember* member = any(); member != nullptr && member->connected &&
                                                     !member->ranks.empty() && up_to(49) == 0) {
                    member->dead = true;
                    member->ranks.clear();
                    membership_.leave(any_id_, true, "", now_);
                }
                break;
            default:
                deliver();
        }
        membership_.tick(now_);
        take();
    }

    void go_on_elsewhere() {
        Membership other(membership_.options());
        other.restore(membership_.state(), now_, milliseconds(3'000));
        membership_ = std::move(other);
        for (auto& [id, member] : members_) member.connected = false;
        wire_.clear();
    }

    SimulatedMember* any() {
        std::vector<MemberId> alive;
        for (const auto& [id, member] : members_)
            if (!member.dead) alive.push_back(id);
        if (alive.empty()) return nullptr;
        any_id_ = alive[up_to(static_cast<std::uint32_t>(alive.size()) - 1)];
        return &members_[any_id_];
    }

    void take() {
        auto orders = membership_.take_orders();
        for (auto& [id, assign] : orders.assignments)
            if (members_[id].connected) wire_.push_back({id, {}, assign});
        for (auto& [id, propose] : orders.proposals)
            if (members_[id].connected) wire_.push_back({id, propose, {}});
        for (auto& [id, member] : members_)  // those that stayed away too long end their ranks
            if (!membership_.has(id)) member.dead = true, member.ranks.clear();
    }

    /// The oldest message of some member.
    void deliver() {
        if (wire_.empty()) return;
        const MemberId to = wire_[up_to(static_cast<std::uint32_t>(wire_.size()) - 1)].to;
        const auto first = std::ranges::find(wire_, to, &Message::to);
        const Message message = *first;
        wire_.erase(first);
        SimulatedMember& member = members_[to];
        if (member.dead) return;
        if (message.propose) {
            member.ranks.clear();
            member.accepted = message.propose->generation;
            membership_.accept(to, member.accepted, now_);
        } else {
            // Only generations that are newer than what it runs are begun.
            REQUIRE(message.assign->generation >= member.running);
            member.running = message.assign->generation;
            member.ranks.clear();
            for (const RankSlot& slot : message.assign->ranks) member.ranks.insert(slot.rank);
        }
    }

    void check() {
        REQUIRE(membership_.generation() >= last_generation_);
        last_generation_ = membership_.generation();
        // One rank once: nobody runs a rank of two generations at the same time, no rank runs twice.
        std::map<Rank, MemberId> owners;
        for (const auto& [id, member] : members_) {
            if (member.dead || member.ranks.empty() || !membership_.has(id)) continue;
            REQUIRE(member.running == membership_.generation());
            for (const Rank rank : member.ranks) {
                REQUIRE(is_below(rank, membership_.world_size()));
                REQUIRE(owners.emplace(rank, id).second);
            }
        }
        if (membership_.phase() != Phase::running) return;
        std::set<Rank> seated;
        for (const auto& [id, seat] : membership_.seats())
            for (const RankSlot& slot : seat.ranks) REQUIRE(seated.insert(slot.rank).second);
        REQUIRE(seated.size() <= max_);
    }

    std::mt19937 random_;
    std::uint32_t max_;
    Membership membership_;
    Deadline now_{};
    std::map<MemberId, SimulatedMember> members_;
    std::uint32_t members_ever_ = 0;
    MemberId any_id_{};
    std::vector<Message> wire_;
    std::uint64_t last_generation_ = 0;
};

}  // namespace

TEST_CASE("whatever members do, a rank runs once and generations only grow", "[membership]") {
    const std::uint32_t seed = test_seed();
    std::uint64_t generations = 0;
    for (unsigned i = 0; i < 60; ++i) {
        INFO("DTRUN_SEED=" << seed << ", round " << i);
        MembershipSimulation simulation(seed + i, 1 + i % 5, 12 + i % 30);
        simulation.run(1'500);
        generations += simulation.generation();
    }
    WARN("DTRUN_SEED=" << seed << ": " << generations << " generations in 60 jobs");
    CHECK(generations > 300);
}

}  // namespace dtrun
