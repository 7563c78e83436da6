// What a daemon decides of a job's members, as they hear it.

#include "tests/rendezvous/guests.h"

#include <algorithm>

namespace dtrun::guests {
namespace {

using Ranks = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a static job begins when its slots have come, and not before", "[daemon]") {
    Guests job(sizes(4, 4));
    REQUIRE(job.enter(1, 2));
    CHECK(job.told(1).assigned == 0);
    REQUIRE(job.enter(2, 2));
    CHECK(job.job().generation() == 1);
    CHECK(job.ranks(1) == Ranks{0, 1});
    CHECK(job.ranks(2) == Ranks{2, 3});
    const Assign& second = job.told(2).assign;
    CHECK(second.node_rank == 1);
    CHECK(second.node_count == 2);
    CHECK(second.world_size == 4);
    CHECK(second.master_address == "10.0.0.1");
    CHECK(second.master_port == 20'001);
    CHECK(second.ranks[0].cross_rank == 1);
    CHECK(second.ranks[0].cross_size == 2);
    CHECK(second.node_names == std::vector<std::string>{"s1", "s2"});
    CHECK(second.peers.empty());  // only rank 0's host serves
    CHECK(job.told(1).assign.peers == std::vector<std::string>{"10.0.0.1", "10.0.0.2"});
}

TEST_CASE("an elastic job begins with fewer ranks after the last call", "[daemon]") {
    Guests job(sizes(2, 8));
    REQUIRE(job.enter(1, 2));
    CHECK(job.told(1).assigned == 0);
    job.pass(500ms);
    REQUIRE(job.enter(2, 2));
    job.pass(1'499ms);
    CHECK(job.job().generation() == 0);
    job.pass(1ms);
    CHECK(job.told(1).assign.world_size == 4);
}

TEST_CASE("a daemon's job has only numbers of ranks that are allowed", "[daemon]") {
    JobPolicy policy = sizes(2, 9);
    policy.sizes.allowed = {2, 4, 8};
    Guests job(policy);
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who, 2));
    job.pass(2s);
    CHECK(job.told(1).assign.world_size == 4);  // of 6: the third is a spare
    CHECK(job.told(3).assigned == 0);
    job.lose(1);
    job.pause({2, 3});
    CHECK(job.ranks(2) == Ranks{0, 1});
    CHECK(job.ranks(3) == Ranks{2, 3});
    REQUIRE(job.enter(4, 2));
    job.pass(5s);
    CHECK(job.told(2).pause->generation == 2);  // 6 are no more than 4
    REQUIRE(job.enter(5, 2));
    job.pass(2s);
    CHECK(job.told(2).pause->generation == 3);
    job.pause({2, 3, 4, 5});
    CHECK(job.told(5).assign.world_size == 8);
}

TEST_CASE("members that say which node they are get their ranks in that order", "[daemon]") {
    Guests job(sizes(6, 6));
    REQUIRE(job.enter(1, 2, 2));
    REQUIRE(job.enter(2, 2));
    const auto twin = job.enter(9, 2, 2);
    REQUIRE_FALSE(twin);
    CHECK(twin.error().message == "another node is --node-rank 2 already");
    REQUIRE(job.enter(3, 2, 0));
    CHECK(job.ranks(1) == Ranks{2, 3});
    CHECK(job.ranks(2) == Ranks{4, 5});
    CHECK(job.ranks(3) == Ranks{0, 1});
}

TEST_CASE("failed ranks restart all as often as the job allows, and then end it", "[daemon]") {
    JobPolicy policy = sizes(2, 2);
    policy.rank_failures_max = 1;
    Guests job(policy);
    REQUIRE(job.enter(1));
    REQUIRE(job.enter(2));
    job.exit(2, 0, 7);
    job.exit(1, 0, 1);  // because of the other
    CHECK(job.told(1).pause->why == "s2: rank 1 exited with code 7");
    job.pause({1, 2});
    CHECK(job.told(1).assign.generation == 2);
    job.exit(2, 0, 8);
    REQUIRE(job.told(1).stop);
    CHECK(job.told(1).stop->why == "s2: rank 1 exited with code 8");
    CHECK(job.told(2).stop->because_of == MemberId{2});
}

TEST_CASE("the first failed rank ends a job that neither is elastic nor starts again", "[daemon]") {
    Guests job(sizes(2, 2));
    REQUIRE(job.enter(1));
    REQUIRE(job.enter(2));
    job.exit(2, 0, 7);
    REQUIRE(job.told(1).stop);
    CHECK(job.told(1).stop->why == "s2: rank 1 exited with code 7");
    CHECK_FALSE(job.told(1).pause);
}

TEST_CASE("the loss of a member costs no restart, also if its peers failed first", "[daemon]") {
    JobPolicy policy = sizes(1, 3);
    policy.rank_failures_max = 0;
    Guests job(policy);
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who));
    job.exit(2, 0, 1);
    REQUIRE(job.told(1).pause);
    const bool is_lost = GENERATE(true, false);
    if (is_lost) job.lose(3);
    job.pause({1, 2, 3});
    CHECK(job.told(1).stop.has_value() != is_lost);
    if (is_lost) CHECK(job.told(1).assign.world_size == 2);
}

TEST_CASE("a daemon's job changes no more often than its limit says", "[daemon]") {
    JobPolicy policy = sizes(1, 3);
    policy.resets_max = 1;
    Guests job(policy);
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who));
    job.lose(3);
    job.pause({1, 2});
    CHECK(job.told(1).assign.generation == 2);
    job.lose(2);
    job.pause({1});
    REQUIRE(job.told(1).stop);
    CHECK_THAT(job.told(1).stop->why, Catch::EndsWith("(--reset-limit)"));
}

TEST_CASE("a daemon's job that has lost too many waits as long as it was told to", "[daemon]") {
    JobPolicy policy = sizes(2, 3);
    policy.timeout = 5s;
    Guests job(policy);
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who));
    job.lose(3);
    job.lose(2);
    job.pause({1});
    CHECK(job.phase() == "gathering");
    job.pass(4'999ms);
    CHECK_FALSE(job.told(1).stop);
    job.pass(1ms);
    REQUIRE(job.told(1).stop);
    CHECK(job.told(1).stop->why ==
          "1 slots are there, and 2 are needed for 5 s (--elastic-timeout)");
}

TEST_CASE("a job whose ranks do not come together ends, and says how many there were", "[daemon]") {
    JobPolicy policy = sizes(4, 4);
    policy.start_timeout = 600s;
    policy.timeout = 5s;
    Guests job(policy);
    REQUIRE(job.enter(1, 2));
    job.pass(599s);
    CHECK_FALSE(job.told(1).stop);
    job.pass(1s);
    REQUIRE(job.told(1).stop);
    CHECK(job.told(1).stop->why == "2 of 4 ranks came within 600 s (--start-timeout)");
}

TEST_CASE("a daemon's job tells its members how many ranks are missing, and until when",
          "[daemon]") {
    JobPolicy policy = sizes(4, 6);
    policy.start_timeout = 600s;
    policy.timeout = 5s;
    Guests job(policy);
    const auto gathering = [&job] { return job.job().gathering(job.now); };
    CHECK_FALSE(gathering());
    REQUIRE(job.enter(1, 2));
    job.pass(1s);
    CHECK(gathering() == Gathering{2, 4, true, 599'000});
    REQUIRE(job.enter(2, 2));
    CHECK_FALSE(gathering());  // enough are there, and in a moment it begins
    job.pass(2s);
    CHECK(gathering() == Gathering{4, 0, false, 0});
    job.lose(2);
    job.pause({1});
    CHECK(gathering() == Gathering{2, 4, false, 5'000});
}

TEST_CASE("survivors of a lost host keep their order, once all have ended their ranks",
          "[daemon]") {
    Guests job(sizes(2, 6));
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who, 2));
    job.lose(1);
    CHECK(job.told(2).pause->generation == 2);
    CHECK(job.told(2).pause->why == "s1: silent");
    job.pause({3});
    CHECK(job.job().generation() == 1);
    job.pause({2});
    CHECK(job.ranks(2) == Ranks{0, 1});
    CHECK(job.ranks(3) == Ranks{2, 3});
}

TEST_CASE("newcomers are let in together after the last call, behind the survivors", "[daemon]") {
    Guests job(sizes(2, 8));
    REQUIRE(job.enter(9, 2));
    job.pass(2s);
    REQUIRE(job.enter(1, 2));
    job.pass(1s);
    REQUIRE(job.enter(2, 2));
    CHECK_FALSE(job.told(9).pause);
    job.pass(1s);
    CHECK(job.told(9).pause);
    job.pause({9, 1, 2});
    CHECK(job.told(9).assign.world_size == 6);
    CHECK(job.ranks(9) == Ranks{0, 1});
}

TEST_CASE("a newcomer that goes again before the last call costs nobody a restart", "[daemon]") {
    Guests job(sizes(2, 8));
    REQUIRE(job.enter(1, 2));
    job.pass(2s);
    REQUIRE(job.enter(2, 2));
    job.pass(500ms);
    job.leave(2, false, "interrupted");
    job.pass(5s);
    CHECK_FALSE(job.told(1).pause);
    CHECK(job.phase() == "running");
}

TEST_CASE("slots beyond the maximum are spares, and take a lost host's place", "[daemon]") {
    Guests job(sizes(2, 3));
    REQUIRE(job.enter(1, 2));
    REQUIRE(job.enter(2, 2));
    CHECK(job.told(1).assign.world_size == 3);
    REQUIRE(job.enter(3, 2));
    job.pass(5s);
    CHECK_FALSE(job.told(1).pause);
    job.lose(2);
    job.pause({1, 3});
    CHECK(job.ranks(3) == Ranks{2});
}

TEST_CASE("a static job ends with the host that it loses", "[daemon]") {
    Guests job(sizes(4, 4));
    REQUIRE(job.enter(1, 2));
    REQUIRE(job.enter(2, 2));
    job.lose(2);
    REQUIRE(job.told(1).stop);
    CHECK(job.told(1).stop->why == "s2: silent");
}

TEST_CASE("a member that comes back in time is asked for nothing, one that does not is lost",
          "[daemon]") {
    Guests job(sizes(2, 4));
    REQUIRE(job.enter(1, 2));
    REQUIRE(job.enter(2, 2));
    job.cut(1);
    CHECK(job.job().next_deadline() == job.now + 3s);
    job.pass(2s);
    REQUIRE(job.enter(1, 2));
    job.pass(5s);
    CHECK_FALSE(job.told(2).pause);
    CHECK(job.told(1).assigned == 1);
    job.cut(1);
    job.pass(3s);
    CHECK(job.told(2).pause->why == "s1: its connection broke and it did not come back");
    const auto late = job.enter(1, 2);
    REQUIRE_FALSE(late);
    CHECK(late.error().message == "this host was taken for lost meanwhile");
}

TEST_CASE("what is said while a member is away arrives once when it is back, both ways",
          "[daemon]") {
    Guests job(sizes(2, 6));
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who, 2));
    job.cut(1);
    job.lose(3);
    CHECK_FALSE(job.told(1).pause);
    REQUIRE(job.enter(1, 2));
    CHECK(job.told(1).pause->generation == 2);
    job.cut(1);
    job.pause({1, 2});  // the first says so to nobody
    CHECK(job.job().generation() == 1);
    REQUIRE(job.enter(1, 2));
    CHECK(job.job().generation() == 2);
    CHECK(job.told(1).assigned == 2);
    REQUIRE(job.enter(1, 2));  // over another connection, the last one not known to be broken
    CHECK(job.told(1).assigned == 2);
}

TEST_CASE("a member that never says what it has heard is given up", "[daemon]") {
    Guests job(sizes(1, 2));
    REQUIRE(job.enter(1));
    const auto is_member = [&job] {
        const auto members = job.job().describe(job.now).at("members").as_array();
        return std::ranges::any_of(members, [](const auto& member) {
            return member.as_object().at("host").as_string() == "s1";
        });
    };
    for (std::uint64_t other = 2; other < 1'000; ++other) {
        REQUIRE(job.enter(other));
        job.pass(2s);
        if (!is_member()) break;
        job.pause({1, other});
        job.lose(other);
        job.pause({1});
    }
    const auto again = job.enter(1);
    REQUIRE_FALSE(again);
    CHECK(again.error().message == "this host was taken for lost meanwhile");
}

TEST_CASE("a member does not go on with a state that is older than what it was told", "[daemon]") {
    Guests job(sizes(1, 2));
    REQUIRE(job.enter(1));
    job.pass(2s);
    const SavedJob older = job.saved();
    REQUIRE(job.enter(2));
    job.pass(2s);
    REQUIRE(job.told(1).pause);
    job.restart_from(older);
    const auto again = job.enter(1);
    REQUIRE_FALSE(again);
    CHECK(again.error().code == Errc::denied);
    CHECK(again.error().message ==
          "the daemon's state is older than what this host was told: it is a copy, or was restored "
          "from a backup");
    CHECK_FALSE(job.enter(2));  // of which it knows nothing

    // The other way round: it does not know any more what it has said that it has heard.
    SentFrames sent;
    for (int times = 0; times < 3; ++times) (void)sent.add(encode(Paused{1}));
    REQUIRE(sent.heard(2));
    HeardFrames heard;
    const auto missed = heard.take(payload_of(sent.unheard().front()), nullptr);
    REQUIRE_FALSE(missed);
    CHECK(missed.error().message ==
          "frame 3 came after 0: what was heard before is forgotten, as by a state that is older "
          "than it was");
}

TEST_CASE("a job has ended well when all ranks have, and each member is told so", "[daemon]") {
    for (const bool well : {true, false}) {
        Guests job(sizes(4, 4));
        REQUIRE(job.enter(1, 2));
        REQUIRE(job.enter(2, 2));
        job.exit(1, 0, 0);
        job.exit(1, 1, 0);
        CHECK(job.phase() == "finishing");
        CHECK_FALSE(job.told(1).stop);
        job.exit(2, 0, 0);
        job.exit(2, 1, well ? 0 : 3);
        REQUIRE(job.told(1).stop);
        CHECK(job.told(1).stop->why == (well ? "" : "s2: rank 3 exited with code 3"));
    }
}

TEST_CASE("a member that has finished may go, and the others go on", "[daemon]") {
    Guests job(sizes(2, 3));
    REQUIRE(job.enter(1));
    REQUIRE(job.enter(2));
    REQUIRE(job.enter(3));
    job.leave(1, true);
    CHECK_FALSE(job.told(2).stop);
    CHECK_FALSE(job.told(2).pause);
    job.leave(2, true);
    job.leave(3, true);
    CHECK(job.job().is_over());
}

TEST_CASE("processes that live on are joined by others, and each is asked for its place once",
          "[daemon]") {
    Guests job(sizes(1, 3));
    REQUIRE(job.enter(1));
    job.pass(2s);
    job.desk(1, RejoinState::supports_rejoin);
    job.desk(1, RejoinState::rendezvoused);
    REQUIRE(job.enter(2));
    job.pass(2s);
    REQUIRE(job.told(2).prepare);
    CHECK(job.told(2).prepare->world.ranks.size() == 1);
    CHECK_FALSE(job.told(1).notify);
    job.desk(2, RejoinState::held_at_start);
    REQUIRE(job.told(1).notify);
    CHECK(job.told(1).notify->reason == ChangeReason::joined);
    job.desk(1, RejoinState::wants_rank);
    REQUIRE(job.told(1).query_commit);
    job.say(1, ReadyToCommit{job.told(1).query_commit->number});
    job.say(2, ReadyToCommit{job.told(2).query_commit->number});
    CHECK(job.told(1).assign.generation == 2);
    CHECK(job.told(1).assign.kept == std::vector<SlotIndex>{SlotIndex{0}});
    CHECK(job.ranks(1) == Ranks{0});
    CHECK(job.ranks(2) == Ranks{1});
    CHECK_FALSE(job.told(1).pause);

    // The loss of one ends the connections of the others, and they go on.
    job.desk(2, RejoinState::supports_rejoin);
    job.desk(2, RejoinState::rendezvoused);
    job.desk(1, RejoinState::rendezvoused);
    job.lose(2);
    REQUIRE(job.told(1).reset_connections);
    CHECK(job.told(1).reset_connections->world);
    job.desk(1, RejoinState::wants_rank);
    job.say(1, ReadyToCommit{job.told(1).query_commit->number});
    CHECK(job.told(1).assign.generation == 3);
    CHECK(job.told(1).assign.world_size == 1);
}

TEST_CASE("a job goes on in another daemon, which says again what was not heard", "[daemon]") {
    JobPolicy policy = sizes(2, 6);
    policy.rank_failures_max = 5;
    Guests job(policy);
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who, 2));
    job.cut(1);
    job.exit(2, 0, 1);  // all are to start again, which the first has not heard
    job.restart();
    CHECK(job.phase() == "changing");
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who, 2));
    CHECK(job.told(1).pause->generation == 2);
    job.pause({1, 2});
    job.restart();
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who, 2));
    CHECK(job.job().generation() == 1);
    job.pause({3});
    CHECK(job.told(1).assign.generation == 2);
    CHECK(job.told(1).assigned == 2);
    CHECK(job.ranks(3) == Ranks{4, 5});
    job.restart();
    CHECK(job.phase() == "running");
    REQUIRE(job.enter(1, 2));
    REQUIRE(job.enter(2, 2));
    job.pass(10s);  // the third is not back
    CHECK(job.told(1).pause->why == "s3: its connection broke and it did not come back");
}

TEST_CASE("processes that live on do so although the daemon is killed", "[daemon]") {
    Guests job(sizes(1, 3));
    for (const std::uint64_t who : {1, 2, 3}) REQUIRE(job.enter(who));
    for (const std::uint64_t who : {1, 2, 3})
        for (const RejoinState state : {RejoinState::supports_rejoin, RejoinState::rendezvoused})
            job.desk(who, state);
    job.lose(3);
    job.desk(1, RejoinState::wants_rank);
    job.restart();
    for (const std::uint64_t who : {1, 2}) REQUIRE(job.enter(who));
    job.desk(2, RejoinState::wants_rank);
    REQUIRE(job.told(1).query_commit);
    job.say(1, ReadyToCommit{job.told(1).query_commit->number});
    job.restart();  // it calls everybody once more
    for (const std::uint64_t who : {1, 2}) REQUIRE(job.enter(who));
    for (const std::uint64_t who : {1, 2})
        job.say(who, ReadyToCommit{job.told(who).query_commit->number});
    CHECK(job.told(1).assign.generation == 2);
    CHECK(job.told(1).assign.kept.size() == 1);
    CHECK_FALSE(job.told(1).pause);
}

TEST_CASE("times that no clock has are bounded, whoever sends them", "[daemon]") {
    JobPolicy policy = sizes(2, 3);
    policy.cooldown_min = policy.last_call = -5s;
    policy.timeout = policy.cooldown_max = milliseconds::max();
    policy.start_timeout = milliseconds::min();
    Guests job(policy);
    REQUIRE(job.enter(1));
    REQUIRE(job.enter(2));
    CHECK(job.told(1).assign.world_size == 2);
    job.lose(2);  // which is left alone for a random time from 0 on
    job.pause({1});
    CHECK(job.phase() == "gathering");
    CHECK_FALSE(job.told(1).stop);
}

TEST_CASE("the number of a host that has gone is given to another", "[daemon]") {
    Guests job(sizes(1, 2));
    REQUIRE(job.enter(1));
    REQUIRE(job.enter(2, 1));
    for (std::uint64_t who = 3; who < 40; ++who) {
        job.lose(who - 1);
        job.pause({1});
        REQUIRE(job.enter(who, 1 + who % 3));
        job.pass(2s);
        job.pause({1, who});
        CHECK(job.told(who).assign.world_size == 2);
    }
}

}  // namespace dtrun::guests
