// Hosts of a job's generations that come and go as planned.
#include "tests/rendezvous/membership_support.h"

namespace dtrun::membership {
using Hosts = std::vector<HostId>;

TEST_CASE("a host that is listed while a job runs is connected to, and joins it", "[elastic]") {
    Membership job = begun(limits(2, 8), 2);
    job.host_listed(h2, 2, kStart);
    CHECK(job.take_orders().connect == Hosts{h2});
    SECTION("when it is ready") {
        job.host_ready(h2, kStart + 5s);
        CHECK_FALSE(job.take_orders().pause);
        job.tick(kStart + 6s);
        CHECK(job.take_orders().pause);
        pause_all(job, kStart + 6s, {h0, h1, h2});
        CHECK(hosts_of(job.take_orders()) == "001122");
    }
    SECTION("unless it cannot be reached: nobody notices, and it is tried again") {
        job.host_failed(h2, kStart + 5s);
        CHECK(job.take_orders().connect.empty());
        CHECK(job.next_deadline() >= kStart + 15s);
        job.tick(kStart + 30s);
        CHECK(job.take_orders().connect == Hosts{h2});
        CHECK(job.generation() == 1);
    }
    SECTION("unless it is delisted before that: then it is let go") {
        job.host_delisted(h2, kStart + 1s);
        job.host_ready(h2, kStart + 2s);
        CHECK(job.take_orders().release == Hosts{h2});
        job.tick(kStart + 10s);
        CHECK(job.generation() == 1);
        CHECK_FALSE(job.take_orders().pause);
    }
}

TEST_CASE("two hosts that come within the last call make one new world", "[elastic]") {
    Membership job = begun(limits(2, 8), 2);
    job.host_listed(h2, 2, kStart);
    job.host_listed(h3, 2, kStart);
    job.host_ready(h2, kStart + 5s);
    job.host_ready(h3, kStart + 5300ms);
    job.tick(kStart + 6s);
    pause_all(job, kStart + 6s, {h0, h1, h2, h3});
    CHECK(hosts_of(job.take_orders()) == "00112233");
}

TEST_CASE("ranks of a delisted host end with their world, and then the host is released",
          "[elastic]") {
    Membership job = begun(limits(2, 8), 3);
    job.host_delisted(h0, kStart + 5s);
    auto orders = job.take_orders();
    CHECK(orders.pause);
    CHECK(orders.release.empty());
    pause_all(job, kStart + 5s, {h0, h1, h2});
    orders = job.take_orders();
    CHECK(hosts_of(orders) == "1122");
    CHECK(orders.release == Hosts{h0});
    SECTION("listed again while it is being left, it comes back when it is free") {
        job.host_listed(h0, 2, kStart + 6s);
        CHECK(job.take_orders().connect.empty());
        job.host_left(h0, kStart + 7s);
        CHECK(job.take_orders().connect == Hosts{h0});
        job.host_ready(h0, kStart + 8s);
        job.tick(kStart + 9s);
        pause_all(job, kStart + 9s, {h0, h1, h2});
        CHECK(hosts_of(job.take_orders()) == "112200");
    }
    SECTION("lost while it is being left, it is no loss") {
        job.host_lost(h0, "silent", kStart + 6s);
        CHECK_FALSE(job.take_orders().pause);
        CHECK(job.cooling().empty());
    }
}

TEST_CASE("without the hosts that a job needs it waits, and ends if they do not come",
          "[elastic]") {
    JobPolicy four = limits(4, 8);
    four.timeout = 30s;
    Membership job = begun(four, 2);
    job.host_delisted(h1, kStart + 5s);
    pause_all(job, kStart + 5s, {h0, h1});
    CHECK(job.phase() == Phase::waiting);
    job.tick(kStart + 35s);
    CHECK(job.take_orders().ended->cause == Cause::too_few);
}

TEST_CASE("a job whose hosts may come later does not end because the first cannot be used",
          "[elastic]") {
    JobPolicy open = limits(2, 8);
    open.hosts_may_come = true;
    Membership job(open);
    job.host_listed(h0, 2, kStart);
    job.host_failed(h0, kStart + 1s);
    CHECK_FALSE(job.take_orders().ended);
    job.host_listed(h1, 2, kStart + 2s);
    job.host_ready(h1, kStart + 3s);
    job.tick(job.next_deadline());
    CHECK(hosts_of(job.take_orders()) == "11");
}

TEST_CASE("ranks that start again are warned, if the user wants that", "[elastic]") {
    JobPolicy warned = limits(2, 8);
    warned.warn_time = 30s;
    warned.warn_signal = 10;
    Membership job = begun(warned, 3);
    job.host_delisted(h2, kStart + 5s);
    auto orders = job.take_orders();
    CHECK_FALSE(orders.pause);
    REQUIRE(orders.warn);
    CHECK(orders.warn->time == 30s);
    CHECK(job.is_warned());
    SECTION("and are ended when the time is over") {
        CHECK(job.next_deadline() == kStart + 35s);
        job.tick(kStart + 35s);
        CHECK(job.take_orders().pause);
        CHECK_FALSE(job.is_warned());
    }
    SECTION("and those that end well have not finished: when all have, the next world begins") {
        for (const RankAssignment& assigned : job.world()) {
            CHECK_FALSE(job.take_orders().pause);
            job.rank_ended(assigned.host, assigned.rank.place, {.well = true}, kStart + 9s);
        }
        CHECK(job.take_orders().pause);
        pause_all(job, kStart + 9s, {h0, h1, h2});
        CHECK(hosts_of(job.take_orders()) == "0011");
    }
    SECTION("and nobody is blamed who ends with another code then") {
        for (const RankAssignment& assigned : job.world())
            job.rank_ended(assigned.host, assigned.rank.place, {.own_fault = true}, kStart + 9s);
        CHECK(job.take_orders().pause);
    }
    SECTION("but a loss waits for nobody") {
        job.host_lost(h1, "crashed", kStart + 6s);
        CHECK(job.take_orders().pause);
    }
}

TEST_CASE("ranks that end well while they are warned without a signal have finished", "[elastic]") {
    JobPolicy warned = limits(2, 8);
    warned.warn_time = 30s;
    Membership job = begun(warned, 2);
    job.host_delisted(h1, kStart + 5s);
    REQUIRE(job.take_orders().warn);
    job.rank_ended(h0, p0, {.well = true}, kStart + 9s);
    SECTION("and with all of them the job") {
        for (const auto& [host, place] : {std::pair(h0, p1), {h1, p0}, {h1, p1}})
            job.rank_ended(host, place, {.well = true}, kStart + 10s);
        CHECK(job.take_orders().ended->cause == Cause::finished);
    }
    SECTION("and the others go on with what they do") {
        job.tick(kStart + 35s);
        CHECK_FALSE(job.take_orders().pause);
        job.tick(kStart + 100s);
        CHECK_FALSE(job.take_orders().warn);
        // It has taken longer to save what it has.
        CHECK(job.rank_ended(h0, p1, {.own_fault = true}, kStart + 101s) ==
              Membership::Meaning::saved);
        CHECK(job.take_orders().pause);
    }
    SECTION("but all start again if another has ended in order to do so") {
        job.rank_ended(h0, p1, {.own_fault = true}, kStart + 10s);
        job.tick(kStart + 35s);
        CHECK(job.take_orders().pause);
    }
}

TEST_CASE("ranks that can go on by the time that a host is lost forget that they were warned",
          "[elastic]") {
    JobPolicy warned = limits(1, 8);
    warned.warn_time = 30s;
    Membership job = begun(warned, 2);
    job.host_delisted(h1, kStart + 5s);
    REQUIRE(job.take_orders().warn);
    for (const RankAssignment& assigned : job.world())
        for (const RejoinState state : {RejoinState::rendezvoused, RejoinState::supports_rejoin})
            job.process_says(assigned.host, assigned.rank.place, state, kStart + 6s);
    job.rank_ended(h1, p0, {.own_fault = true}, kStart + 7s);  // it was saved
    job.host_lost(h1, "crashed", kStart + 8s);
    REQUIRE(job.take_orders().reset_connections);
    wait_at_desk(job, {{h0, p1}});
    job.rank_ended(h0, p0, {.why = "killed"}, kStart + 9s);
    CHECK(job.take_orders().query_commit);  // the other is not kept waiting
}

TEST_CASE(
    "a host that ran for a minute is tried again soon when it is lost, as if for the first time",
    "[elastic]") {
    Membership job = begun(limits(1, 4), 2);
    Deadline now = kStart;
    for (int i = 0; i < 4; ++i) {
        job.host_lost(h0, "crashed", now);
        pause_all(job, now, {h1});
        now = job.next_deadline();
        job.tick(now);
        job.host_ready(h0, now);
        job.tick(now += 1s);
        pause_all(job, now, {h0, h1});
        job.take_orders();
    }
    now += Membership::kStable;
    SECTION("whether it is the first thing that happens") {}
    SECTION("or all have started again just now") {
        job.rank_ended(h1, p0, {.why = "killed"}, now);
        pause_all(job, now, {h0, h1});
    }
    job.host_lost(h0, "crashed", now);
    CHECK(job.cooling().at(0).second <= now + 20s);
    for (milliseconds shortest = 20s; shortest < 300s; shortest *= 2) {  // it is not back
        job.tick(now = job.cooling().at(0).second);
        job.host_failed(h0, now);
        CHECK(job.cooling().at(0).second >= now + shortest);
    }
}

/// The process of h0's first slot asks for a place and gets it, with those that are held there. All meet.
void first_goes_on(Membership& job, Deadline now) {
    job.process_says(h0, p0, RejoinState::wants_rank, now);
    job.host_ready_to_commit(h0, job.take_orders().query_commit.value(), now);
    for (const SlotIndex place : {p0, p1})
        for (const RejoinState state : {RejoinState::supports_rejoin, RejoinState::rendezvoused})
            job.process_says(h0, place, state, now);
}

TEST_CASE("a slot whose process has lived for a minute is not closed for what was before",
          "[elastic]") {
    Membership job = keeping(limits(1, 4), 1);
    Deadline now = kStart;
    for (int i = 0; i < 5; ++i) {
        now += Membership::kStable;
        job.rank_ended(h0, p1, {.why = "killed"}, now);
        first_goes_on(job, now);
        CHECK(job.world().size() == 1);
        job.tick(now += 1s);
        job.process_says(h0, p1, RejoinState::held_at_start, now);
        first_goes_on(job, now);
        CHECK(job.world().size() == 2);
    }
}

TEST_CASE("a process that fails at once has not lived for as long as the others take to ask",
          "[elastic]") {
    Membership job = keeping(limits(1, 4), 1);
    Deadline now = kStart;
    for (std::uint32_t i = 1; i <= Membership::kFailuresInARow; ++i) {
        job.rank_ended(h0, p1, {.why = "killed"}, now += 1s);
        now += Membership::kStable;
        first_goes_on(job, now);
        job.tick(now += 1s);
        if (i == Membership::kFailuresInARow) break;
        job.process_says(h0, p1, RejoinState::held_at_start, now);
        first_goes_on(job, now);
        CHECK(job.world().size() == 2);
    }
    CHECK_FALSE(job.take_orders().prepare);
}

TEST_CASE(
    "a slot that fails again and again is left alone, however long the others work without it",
    "[elastic]") {
    Membership job = keeping(limits(1, 4), 1);
    Deadline now = kStart;
    for (std::uint32_t i = 1; i <= Membership::kFailuresInARow; ++i) {
        job.rank_ended(h0, p1, {false, true, "it failed"}, now += 1s);
        first_goes_on(job, now);
        CHECK(job.world().size() == 1);
        job.tick(now += Membership::kStable);
        if (i == Membership::kFailuresInARow) break;
        job.process_says(h0, p1, RejoinState::held_at_start, now);
        first_goes_on(job, now);
        CHECK(job.world().size() == 2);
    }
    CHECK_FALSE(job.take_orders().prepare);
}

TEST_CASE("ranks that end because their agent has lost its head are not those that fail",
          "[elastic]") {
    JobPolicy once = limits(1, 4);
    once.rank_failures_max = 0;
    Membership job = keeping(once, 2);
    job.rank_ended(h1, p0, {.why = "ended", .is_ours = true}, kStart + 1s);
    wait_at_desk(job, {{h0, p0}, {h0, p1}, {h1, p1}});
    CHECK_FALSE(job.take_orders().ended);
    job.host_lost(h1, "silent", kStart + 2s);
    CHECK_FALSE(job.take_orders().ended);
}

TEST_CASE("hosts that are lost together are one event for all others", "[elastic]") {
    const std::vector<Membership::Loss> both{{h2, "h2 crashed"}, {h3, "h3 crashed"}};
    SECTION("who has asked for a place is asked to commit once more, not twice") {
        Membership job = keeping(limits(1, 8), 4);
        job.rank_ended(h1, p1, {.why = "crashed"}, kStart);
        wait_at_desk(job, {{h0, p0}, {h0, p1}, {h1, p0}, {h2, p0}, {h2, p1}, {h3, p0}, {h3, p1}});
        const auto before = job.take_orders().query_commit;
        REQUIRE(before);
        job.hosts_lost(both, kStart + 1s);
        const auto asked = job.take_orders().query_commit;
        CHECK(asked == *before + 1);
        for (const HostId host : {h0, h1}) job.host_ready_to_commit(host, *asked, kStart + 1s);
        CHECK(hosts_of(job.take_orders()) == "001");
    }
    SECTION("whose ranks cannot go on, ends these once") {
        Membership job = begun(limits(1, 8), 4);
        job.hosts_lost(both, kStart + 1s);
        const auto orders = job.take_orders();
        REQUIRE(orders.pause);
        CHECK(orders.pause->why == "h2 crashed");
        CHECK(job.cooling().size() == 2);
        pause_all(job, kStart + 1s, {h0, h1});
        CHECK(hosts_of(job.take_orders()) == "0011");
    }
    SECTION("and each counts as a failure") {
        JobPolicy one_may_fail = limits(1, 8);
        one_may_fail.failures_max = 1;
        Membership job = begun(one_may_fail, 4);
        job.hosts_lost(both, kStart + 1s);
        const auto ended = job.take_orders().ended;
        REQUIRE(ended);
        CHECK(ended->cause == Cause::failures);
        CHECK(ended->why == "h3 crashed");
    }
    SECTION("which are none of the job's where they were being left") {
        Membership job = begun(limits(1, 8), 4);
        for (const HostId host : {h2, h3}) job.host_delisted(host, kStart + 1s);
        pause_all(job, kStart + 1s, {h0, h1, h2, h3});
        CHECK(job.take_orders().release == Hosts{h2, h3});
        job.hosts_lost(both, kStart + 2s);
        const auto orders = job.take_orders();
        CHECK_FALSE(orders.pause);
        CHECK_FALSE(orders.ended);
    }
}

TEST_CASE("a host that is lost while it is left is not used again at once", "[elastic]") {
    Membership job = begun(limits(1, 4), 2);
    job.host_delisted(h1, kStart + 1s);
    pause_all(job, kStart + 1s, {h0, h1});
    CHECK(job.take_orders().release == Hosts{h1});
    job.host_listed(h1, 2, kStart + 2s);
    job.host_lost(h1, "crashed", kStart + 3s);
    CHECK(job.take_orders().connect.empty());
    CHECK(job.cooling().size() == 1);
}

TEST_CASE("a lost host that is not listed any more is not tried again", "[elastic]") {
    Membership job = begun(limits(1, 4), 2);
    job.host_lost(h1, "crashed", kStart);
    pause_all(job, kStart, {h0});
    job.host_delisted(h1, kStart + 1s);
    CHECK(job.cooling().empty());
    job.take_orders();
    job.tick(kStart + 100s);
    CHECK(job.take_orders().connect.empty());
}

TEST_CASE("newcomers of a host end, and those of others, when it goes before they are ready",
          "[elastic]") {
    Membership job = keeping(limits(1, 8), 2);
    for (const HostId host : {h2, h3}) job.host_listed(host, 1, kStart);
    for (const HostId host : {h2, h3}) job.host_ready(host, kStart);
    job.tick(kStart + 1s);
    CHECK(written(job.take_orders().prepare) == "0.0 0.1 1.0 1.1 2.0* 3.0* ");
    const std::vector<std::pair<HostId, SlotIndex>> other{{h3, p0}};
    SECTION("because it is lost") {
        job.host_lost(h2, "crashed", kStart + 2s);
        CHECK(job.take_orders().kill == other);
    }
    SECTION("because it is left") {
        job.host_delisted(h2, kStart + 2s);
        const auto orders = job.take_orders();
        CHECK(orders.kill == other);
        CHECK(orders.release == Hosts{h2});
    }
}

TEST_CASE("processes that live on are asked before their host is left", "[elastic]") {
    Membership job = keeping(limits(2, 8), 3);
    job.host_delisted(h0, kStart + 5s);
    auto orders = job.take_orders();
    CHECK(orders.notify);
    CHECK_FALSE(orders.reset_connections);
    CHECK_FALSE(orders.pause);
    meet_again(job, {{h0, p0}, {h0, p1}, {h1, p0}, {h1, p1}, {h2, p0}, {h2, p1}}, {h1, h2});
    orders = job.take_orders();
    CHECK(written(orders.begin) == "1.0 1.1 2.0 2.1 ");
    CHECK(orders.release == Hosts{h0});
    CHECK(orders.kill.empty());  // the release ends them
}

TEST_CASE("a host that replaces another is there before the other is left", "[elastic]") {
    Membership job = keeping(limits(2, 4), 2);
    job.host_listed(h2, 2, kStart);
    job.host_ready(h2, kStart);
    job.take_orders();
    job.host_delisted(h0, kStart + 5s);
    auto orders = job.take_orders();
    CHECK(written(orders.prepare) == "1.0 1.1 2.0* 2.1* ");
    CHECK_FALSE(orders.notify);
    SECTION("if it comes soon") {
        for (const SlotIndex place : {p0, p1})
            job.process_says(h2, place, RejoinState::held_at_start, kStart + 6s);
        CHECK(job.take_orders().notify);
        meet_again(job, {{h0, p0}, {h0, p1}, {h1, p0}, {h1, p1}}, {h1, h2});
        CHECK(written(job.take_orders().begin) == "1.0 1.1 2.0 2.1 ");
    }
    SECTION("else it is not waited for") {
        job.tick(kStart + 5s + Membership::kReplacedWithin);
        CHECK(job.take_orders().notify);
    }
    SECTION("unless a rank has ended well by then: nobody is disturbed any more") {
        job.rank_ended(h1, p0, {.well = true}, kStart + 6s);
        job.tick(kStart + 5s + Membership::kReplacedWithin);
        CHECK_FALSE(job.take_orders().notify);
    }
}

TEST_CASE("slots of a host come and go, the highest first", "[elastic]") {
    Membership job = keeping(limits(1, 8), 2);
    SECTION("less") {
        job.host_listed(h0, 1, kStart + 5s);
        CHECK(job.take_orders().notify);
        meet_again(job, {{h0, p0}, {h0, p1}, {h1, p0}, {h1, p1}}, {h0, h1});
        const auto orders = job.take_orders();
        CHECK(written(orders.begin) == "0.0 1.0 1.1 ");
        CHECK(orders.kill == std::vector<std::pair<HostId, SlotIndex>>{{h0, p1}});
        CHECK(orders.release.empty());
    }
    SECTION("more") {
        job.host_listed(h0, 3, kStart + 5s);
        job.tick(kStart + 6s);
        CHECK(written(job.take_orders().prepare) == "0.0 0.1 0.2* 1.0 1.1 ");
    }
}

TEST_CASE("a host that is delisted and listed again at once costs nothing", "[elastic]") {
    JobPolicy warned = limits(2, 8);
    Membership job = keeping(warned, 2);
    job.host_listed(h2, 2, kStart);
    job.host_delisted(h2, kStart + 1s);
    job.host_listed(h2, 2, kStart + 2s);
    job.host_ready(h2, kStart + 3s);
    job.tick(kStart + 4s);
    const auto orders = job.take_orders();
    CHECK(orders.prepare);
    CHECK(orders.release.empty());
}

TEST_CASE("spares wait until a host is lost, and the oldest takes its place", "[elastic]") {
    JobPolicy spare = limits(4, 8);
    spare.ranks_start = 6;
    spare.spares = 1;
    Membership job(spare);
    for (const HostId host : {h0, h1, h2, h3}) job.host_listed(host, 2, kStart);
    for (const HostId host : {h0, h1, h2, h3}) job.host_ready(host, kStart);
    CHECK(hosts_of(job.take_orders()) == "001122");
    job.tick(kStart + 5s);
    CHECK(job.generation() == 1);
    job.host_lost(h1, "crashed", kStart + 9s);
    pause_all(job, kStart + 9s, {h0, h2, h3});
    CHECK(hosts_of(job.take_orders()) == "002233");
    job.tick(kStart + 40s);
    job.host_ready(h1, kStart + 41s);  // it is the spare now
    job.tick(kStart + 45s);
    CHECK(job.generation() == 2);
}

TEST_CASE("a limit of ranks' failures does not count those that a lost host has caused",
          "[elastic]") {
    JobPolicy once = limits(2, 8);
    once.rank_failures_max = 1;
    Membership job = begun(once, 3);
    job.rank_ended(h1, p0, {.why = "peer gone"}, kStart + 100s);
    job.host_lost(h2, "crashed", kStart + 101s);
    pause_all(job, kStart + 101s, {h0, h1});
    CHECK(hosts_of(job.take_orders()) == "0011");
    for (int i = 0; i < 2; ++i) {
        CHECK_FALSE(job.take_orders().ended);
        job.rank_ended(h1, p0, {.why = "killed"}, kStart + 200s);
        pause_all(job, kStart + 200s, {h0, h1});
    }
    CHECK(job.take_orders().ended->cause == Cause::too_many_failures);
}

}  // namespace dtrun::membership
