#include "rendezvous/job/membership.h"

#include "tests/rendezvous/membership_support.h"
#include "tests/support/catch.h"

#include <set>

namespace dtrun::membership {

TEST_CASE("the first world waits for hosts that are on their way, in the order of the list",
          "[elastic]") {
    Membership job(limits(2, 8));
    for (const HostId host : {h0, h1, h2}) job.host_listed(host, 2, kStart);
    job.host_ready(h2, kStart);
    CHECK(job.phase() == Phase::waiting);
    job.host_ready(h0, kStart + 500ms);
    CHECK(hosts_of(job.take_orders()) == "-");
    SECTION("until all have come") {
        job.host_ready(h1, kStart + 600ms);
        CHECK(hosts_of(job.take_orders()) == "001122");
    }
    SECTION("until the last call is over") {
        CHECK(job.next_deadline() == kStart + 1s);
        job.tick(kStart + 1s);
        CHECK(hosts_of(job.take_orders()) == "0022");
        job.host_ready(h1, kStart + 3s);  // it comes late, and is last
        job.tick(kStart + 4s);
        CHECK(job.take_orders().pause->generation == 2);
        pause_all(job, kStart + 4s, {h0, h1, h2});
        CHECK(hosts_of(job.take_orders()) == "002211");
    }
    SECTION("until the others have failed") {
        job.host_failed(h1, kStart + 700ms);
        CHECK(hosts_of(job.take_orders()) == "0022");
    }
}

TEST_CASE("survivors of a lost host go on at once, in their order", "[elastic]") {
    Membership job = begun(limits(2, 8), 4);
    job.host_lost(h1, "cut off", kStart + 70s);
    const auto orders = job.take_orders();
    REQUIRE(orders.pause);
    CHECK(orders.pause->generation == 2);
    CHECK(orders.pause->why == "cut off");
    pause_all(job, kStart + 70s, {h0, h3});
    CHECK(hosts_of(job.take_orders()) == "-");
    job.host_lost(h0, "cut off, too", kStart + 70s);  // its answer does not count any more
    pause_all(job, kStart + 70s, {h2});
    CHECK(hosts_of(job.take_orders()) == "2233");
    CHECK(job.resets() == 1);
}

TEST_CASE("a lost host is tried again after a time that doubles, and joins as the last",
          "[elastic]") {
    Membership job = begun(limits(2, 8), 2);
    Deadline now = kStart;
    milliseconds shortest = 10s;
    for (int i = 0; i < 7; ++i) {
        job.host_lost(h0, "crashed", now);
        pause_all(job, now, {h1});
        CHECK(hosts_of(job.take_orders()) == "11");
        const auto cooling = job.cooling();
        REQUIRE(cooling.size() == 1);
        CHECK(cooling[0].second - now >= shortest);
        CHECK(cooling[0].second - now <= std::min<milliseconds>(shortest + 10s, 300s));
        now = job.next_deadline();
        job.tick(now);
        CHECK(job.take_orders().connect == std::vector{h0});
        job.host_ready(h0, now);
        now += 1s;
        job.tick(now);
        pause_all(job, now, {h0, h1});
        CHECK(hosts_of(job.take_orders()) == "1100");
        shortest = std::min<milliseconds>(2 * shortest, 300s);
    }
}

TEST_CASE("below the minimum a job waits, and ends when it has waited too long", "[elastic]") {
    JobPolicy few = limits(4, 8);
    few.timeout = 30s;
    Membership job = begun(few, 2);
    job.host_lost(h0, "crashed", kStart);
    pause_all(job, kStart, {h1});
    CHECK(hosts_of(job.take_orders()) == "-");
    CHECK(job.phase() == Phase::waiting);
    SECTION("a host that returns lets it go on") {
        Deadline now = job.next_deadline();
        job.tick(now);
        job.host_ready(h0, now);
        CHECK(hosts_of(job.take_orders()) == "1100");
    }
    SECTION("nobody returns") {
        while (job.phase() == Phase::waiting) {
            const Deadline now = job.next_deadline();
            REQUIRE(now <= kStart + 30s);
            job.tick(now);
            if (!job.take_orders().connect.empty()) job.host_failed(h0, now);
            if (now == kStart + 30s) break;
        }
        CHECK(job.phase() == Phase::ended);
    }
}

TEST_CASE("a program that fails by itself three times in a row ends the job", "[elastic]") {
    Membership job = begun(limits(2, 4), 2);
    const auto fail = [&job](HostId host, bool own_fault, Deadline now) {
        job.rank_ended(host, SlotIndex{0}, {false, own_fault, "it failed"}, now);
        pause_all(job, now, {h0, h1});
        return job.take_orders();
    };
    SECTION("in different slots") {
        CHECK(hosts_of(fail(h0, true, kStart)) == "0011");
        CHECK(hosts_of(fail(h1, true, kStart)) == "0011");
        CHECK(fail(h0, true, kStart).ended->cause == Cause::rank_failed);
    }
    SECTION("but not if the slot is always the same, which is left alone") {
        for (int i = 0; i < 2; ++i) CHECK(hosts_of(fail(h0, true, kStart)) == "0011");
        CHECK(hosts_of(fail(h0, true, kStart)) == "011");
        job.tick(job.next_deadline());
        CHECK_FALSE(job.take_orders().pause);
        job.tick(job.next_deadline());
        CHECK(job.take_orders().pause);  // to start the fourth once more
    }
    SECTION("nor if that slot fails again each time that it is tried once more") {
        Deadline now = kStart;
        for (int closings = 0; closings < 5; ++closings) {
            for (int i = 0; i < 3; ++i) CHECK_FALSE(fail(h0, true, now).ended);
            CHECK(job.world().size() == 3);
            while (job.world().size() == 3) {
                now = job.next_deadline();
                job.tick(now);
                pause_all(job, now, {h0, h1});
            }
        }
    }
    SECTION("but not if a world has lasted for a minute between, whatever has ended it") {
        for (int i = 0; i < 2; ++i) fail(i == 0 ? h0 : h1, true, kStart);
        job.restart("hosts have changed", kStart + 2h);
        pause_all(job, kStart + 2h, {h0, h1});
        CHECK(hosts_of(job.take_orders()) == "0011");
        CHECK(hosts_of(fail(h0, true, kStart + 2h + 1s)) == "0011");
    }
    SECTION("but not if somebody kills it each time, or it runs for a minute between") {
        for (int i = 0; i < 2; ++i) {
            CHECK(hosts_of(fail(h0, false, kStart)) == "0011");
            CHECK(hosts_of(fail(h1, false, kStart)) == "0011");
        }
        for (int i = 1; i < 9; ++i)
            CHECK(hosts_of(fail(i % 2 != 0 ? h0 : h1, true, kStart + i * 61s)) == "0011");
    }
}

TEST_CASE("a program that fails in one slot after the other ends the job, whatever slots are left",
          "[elastic]") {
    Membership job = begun(limits(1, 1), 9);
    std::uint32_t failures = 0;
    for (Deadline now = kStart; job.phase() == Phase::running && failures < 90; now += 5s) {
        const RankAssignment runs = job.world().front();
        ++failures;
        job.rank_ended(runs.host, runs.rank.place, {false, true, "it failed"}, now);
        for (std::uint32_t host = 0; host < 9; ++host) pause_all(job, now, {HostId{host}});
    }
    CHECK(failures == Membership::kFailuresInARow * Membership::kFailuresInARow);
    CHECK(job.take_orders().ended->cause == Cause::rank_failed);
}

TEST_CASE("a program that fails in all slots ends the job, also where these are fewer than three",
          "[elastic]") {
    Membership job = begun(limits(1, 1), 1);
    Deadline now = kStart;
    for (int failures = 0; job.phase() == Phase::running && failures < 30; ++failures) {
        const RankAssignment runs = job.world().front();
        job.rank_ended(runs.host, runs.rank.place, {false, true, "it failed"}, now);
        pause_all(job, now, {h0});
        // The slot that was left alone has cooled down by the time that the other one fails.
        while (job.next_deadline() < now + 20s) job.tick(job.next_deadline());
        now += 20s;
    }
    CHECK(job.take_orders().ended->cause == Cause::rank_failed);
}

TEST_CASE("a slot that fails again and again comes back when the others have shown that they work",
          "[elastic]") {
    JobPolicy brief = limits(1, 4);
    brief.cooldown_min = 2s;
    brief.cooldown_max = 3s;
    Membership job = begun(brief, 2);
    Deadline now = kStart, began = kStart;
    std::uint32_t failures = 0;
    milliseconds longest{0};  // that a world has lasted
    const auto play = [&](bool fails_everywhere) {
        while (job.phase() == Phase::running && failures < 60) {
            const std::uint64_t generation = job.generation();
            const RankAssignment first = job.world().front();
            const bool fails = fails_everywhere || (first.host == h0 && first.rank.place == p0);
            now = job.next_deadline();
            if (fails && began + 5s <= now) {
                now = began + 5s;
                ++failures;
                job.rank_ended(first.host, first.rank.place, {false, true, "it failed"}, now);
            } else {
                job.tick(now);
            }
            pause_all(job, now, {h0, h1});
            if (job.generation() == generation) continue;
            longest = std::max(longest, std::chrono::duration_cast<milliseconds>(now - began));
            began = now;
        }
    };
    SECTION("and if they do not, the job ends") {
        play(true);
        CHECK(failures == 5 * Membership::kFailuresInARow);
        const auto ended = job.take_orders().ended;
        REQUIRE(ended);
        CHECK(ended->cause == Cause::rank_failed);
    }
    SECTION("and if they do, it never ends, and they have their minute") {
        play(false);
        CHECK(failures == 60);
        CHECK(job.phase() == Phase::running);
        CHECK(longest >= Membership::kStable);
        CHECK(longest < Membership::kStable + 5s);
    }
}

TEST_CASE("with --refill never a program that always fails on one host ends the job without others",
          "[elastic]") {
    JobPolicy never = limits(2, 4);
    never.refill = Refill::never;
    never.cooldown_min = 2s;
    never.cooldown_max = 3s;
    milliseconds longest{0};  // that a world has lasted
    const auto play = [&longest](Membership& job, std::span<const HostId> hosts) {
        std::uint32_t failures = 0;
        Deadline began = kStart, now = kStart;
        while (job.phase() != Phase::ended && failures < 30) {
            const std::uint64_t generation = job.generation();
            now = job.next_deadline();
            const bool has_bad = job.phase() == Phase::running && job.has_ranks(h0);
            if (has_bad && began + 1s <= now) {
                now = began + 1s;
                const SlotIndex place{failures++ % 2};
                job.rank_ended(h0, place, {false, true, "it failed"}, now);
            } else {
                job.tick(now);
            }
            for (const HostId host : hosts) pause_all(job, now, {host});
            if (job.generation() == generation) continue;
            longest = std::max(longest, std::chrono::duration_cast<milliseconds>(now - began));
            began = now;
        }
        return failures;
    };
    SECTION("because there are none") {
        Membership job = begun(never, 1);
        CHECK(play(job, std::array{h0}) == Membership::kFailuresInARow);
        CHECK(job.take_orders().ended->cause == Cause::rank_failed);
    }
    SECTION("because they are too few") {
        never.ranks_min = never.ranks_start = 3;
        Membership job = begun(never, 2);
        CHECK(play(job, std::array{h0, h1}) == Membership::kFailuresInARow);
        CHECK(job.take_orders().ended->cause == Cause::rank_failed);
    }
    SECTION("and goes on where they do, with a minute for them") {
        Membership job = begun(never, 2);
        CHECK(play(job, std::array{h0, h1}) == 30);
        CHECK(job.phase() != Phase::ended);
        CHECK(longest >= Membership::kStable);
    }
}

TEST_CASE("ranks that fail because their host is lost are not to blame", "[elastic]") {
    Membership job = begun(limits(2, 6), 3);
    for (int i = 0; i < 5; ++i) {
        const Deadline now = kStart + i * 20s;
        job.rank_ended(h0, SlotIndex{1}, {false, true, "connection closed by peer"}, now);
        job.host_lost(h2, "crashed", now);
        pause_all(job, now, {h0, h1});
        CHECK(hosts_of(job.take_orders()) == "0011");
        job.host_listed(h2, 2, now);
        job.host_ready(h2, now);
        job.tick(now + 1s);
        pause_all(job, now + 1s, {h0, h1, h2});
        CHECK(hosts_of(job.take_orders()) == "001122");
    }
}

TEST_CASE("the reset limit allows so many changes and not one more", "[elastic]") {
    JobPolicy few = limits(2, 8);
    few.resets_max = 1;
    Membership job = begun(few, 3);
    job.host_lost(h0, "crashed", kStart);
    pause_all(job, kStart, {h1, h2});
    CHECK(hosts_of(job.take_orders()) == "1122");
    job.host_lost(h1, "crashed", kStart);
    pause_all(job, kStart, {h2});
    const auto orders = job.take_orders();
    REQUIRE(orders.ended);
    CHECK(orders.ended->cause == Cause::resets);
    // Programs look for these words of Horovod's.
    CHECK(orders.ended->why ==
          "Horovod was shutdown because number of resets during elastic job exceeded limit: 1");

    few.resets_max = 0;
    Membership never = begun(few, 3);
    never.host_lost(h0, "crashed", kStart);
    pause_all(never, kStart, {h1, h2});
    CHECK(never.take_orders().ended->cause == Cause::resets);
}

TEST_CASE("nobody joins a world that is finishing, and a loss of finished ranks is none",
          "[elastic]") {
    Membership job = begun(limits(2, 8), 2);
    for (const SlotIndex place : {SlotIndex{0}, SlotIndex{1}})
        job.rank_ended(h0, place, {.well = true}, kStart);
    job.host_listed(h2, 2, kStart);
    job.host_ready(h2, kStart);
    job.tick(kStart + 5s);
    job.host_lost(h0, "switched off", kStart + 6s);
    CHECK_FALSE(job.take_orders().pause);
    job.host_lost(h1, "switched off", kStart + 7s);
    CHECK(job.take_orders().pause);
}

TEST_CASE("a job none of whose hosts can be used ends at once", "[elastic]") {
    Membership job(limits(1, 4));
    job.host_listed(h0, 2, kStart);
    job.host_listed(h1, 2, kStart);
    job.host_failed(h1, kStart);
    CHECK(job.phase() == Phase::waiting);
    job.host_failed(h0, kStart);
    CHECK(job.take_orders().ended->cause == Cause::cannot_start);
}

TEST_CASE("a fixed job has the world of its plan, and nothing but a restart changes it",
          "[elastic]") {
    JobPolicy fixed;
    fixed.ranks_min = fixed.ranks_start = fixed.sizes.max = 3;
    Membership job(fixed, {{h0, {Rank{0}, 0, 0, 2, 0, SlotIndex{0}}, true},
                           {h1, {Rank{1}, 0, 1, 2, 0, SlotIndex{0}}, true},
                           {h0, {Rank{2}, 1, 0, 1, 1, SlotIndex{1}}, true}});
    job.host_listed(h0, 2, kStart);
    job.host_listed(h1, 1, kStart);
    job.host_ready(h1, kStart);
    job.host_ready(h0, kStart);
    CHECK(hosts_of(job.take_orders()) == "010");
    job.restart("rank 1 failed", kStart);
    job.restart("rank 2 failed, too", kStart);
    CHECK(job.take_orders().pause->generation == 2);
    pause_all(job, kStart, {h0, h1});
    CHECK(hosts_of(job.take_orders()) == "010");
}

TEST_CASE("a fixed job whose agent ends a rank has lost its host, and no rank has failed",
          "[elastic]") {
    JobPolicy fixed = limits(4, 4);
    fixed.elastic = false;
    for (const bool is_ours : {false, true}) {
        Membership job = begun(fixed, 2);
        job.rank_ended(h1, p0, {.why = "ended", .is_ours = is_ours}, kStart);
        CHECK(job.take_orders().ended->cause == (is_ours ? Cause::host_lost : Cause::rank_failed));
    }
}

// Every order of up to six events of four hosts: what hosts do, what they are asked, and time.
namespace {

/// A job with what its hosts know, so that every event that can happen now is known.
struct Model {
    Membership job;
    Deadline now = kStart;
    std::set<HostId> up{}, dialled{};
    std::set<HostId> to_pause{};
    std::uint64_t pausing = 0;
    std::set<HostId> survivors{};  ///< in the order of the last world: hosts not lost since
    std::vector<HostId> order{};

    void check_world(const std::vector<RankAssignment>& world) {
        std::vector<HostId> hosts;
        for (std::size_t i = 0; i < world.size(); ++i) {
            CHECK(std::to_underlying(world[i].rank.rank) == i);
            CHECK(up.contains(world[i].host));
            if (hosts.empty() || hosts.back() != world[i].host) hosts.push_back(world[i].host);
        }
        CHECK(std::set(hosts.begin(), hosts.end()).size() == hosts.size());  // blocks
        std::vector<HostId> kept;
        for (const HostId host : order)
            if (survivors.contains(host)) kept.push_back(host);
        for (std::size_t i = 0; i < kept.size(); ++i) CHECK(hosts.at(i) == kept[i]);
        order = hosts;
        survivors = {hosts.begin(), hosts.end()};
        CHECK(world.size() >= 2);
    }

    void obey() {
        auto orders = job.take_orders();
        for (const HostId host : orders.connect) dialled.insert(host);
        if (orders.pause) {
            CHECK_FALSE(orders.begin);
            CHECK(pausing == 0);
            pausing = orders.pause->generation;
            to_pause = up;
        }
        if (orders.begin) {
            for (const HostId host : survivors) CHECK_FALSE(to_pause.contains(host));
            pausing = 0;
            check_world(*orders.begin);
        }
        CHECK((job.phase() != Phase::running || pausing == 0));
    }
};

/// \return how many orders of events were tried
std::size_t explore(const Model& model, int depth) {
    if (depth == 0) {
        // Left alone, it comes to rest: whoever is asked answers, and hosts return.
        Model rest = model;
        for (int i = 0; i < 40 && rest.job.phase() != Phase::ended; ++i) {
            for (const HostId host : std::exchange(rest.to_pause, {}))
                if (rest.up.contains(host))
                    rest.job.host_paused(host, rest.pausing, rest.now), rest.obey();
            for (const HostId host : std::exchange(rest.dialled, {}))
                rest.up.insert(host), rest.job.host_ready(host, rest.now), rest.obey();
            if (rest.job.phase() == Phase::running && rest.up.size() == 4) break;
            if (const Deadline next = rest.job.next_deadline(); next != Deadline::max())
                rest.job.tick(rest.now = std::max(rest.now, next)), rest.obey();
        }
        CHECK(rest.job.phase() == Phase::running);
        CHECK(rest.up.size() == 4);
        return 1;
    }
    std::size_t tried = 0;
    const auto branch = [&](auto change) {
        Model next = model;
        change(next);
        next.obey();
        tried += explore(next, depth - 1);
    };
    for (const HostId host : model.up)
        branch([host](Model& next) {
            next.up.erase(host), next.to_pause.erase(host), next.survivors.erase(host);
            next.job.host_lost(host, "lost", next.now);
        });
    for (const HostId host : model.to_pause)
        branch([host](Model& next) {
            next.to_pause.erase(host);
            next.job.host_paused(host, next.pausing, next.now);
        });
    for (const HostId host : model.dialled) {
        branch([host](Model& next) {
            next.dialled.erase(host), next.up.insert(host);
            next.job.host_ready(host, next.now);
        });
        branch([host](Model& next) {
            next.dialled.erase(host);
            next.job.host_failed(host, next.now);
        });
    }
    if (model.job.phase() == Phase::running)
        branch([](Model& next) {
            const RankAssignment& last = next.job.world().back();
            if (next.up.contains(last.host))
                next.job.rank_ended(last.host, last.rank.place, {.why = "killed"}, next.now);
        });
    if (const Deadline due = model.job.next_deadline(); due != Deadline::max())
        branch([due](Model& next) { next.job.tick(next.now = std::max(next.now, due)); });
    return tried;
}

}  // namespace

TEST_CASE("in every order of losses, returns and answers a job comes to a right world",
          "[elastic]") {
    JobPolicy any = limits(2, 8);
    any.timeout = 100h;
    Model model{Membership(any)};
    for (const HostId host : {h0, h1, h2, h3}) {
        model.job.host_listed(host, 2, kStart);
        model.up.insert(host);
    }
    model.job.take_orders();
    for (const HostId host : {h3, h1, h0, h2}) model.job.host_ready(host, kStart);
    model.obey();
    CHECK(explore(model, 6) > 10'000);
}

// Processes that live through several worlds.

TEST_CASE("survivors get their places when all have asked and every host has answered",
          "[elastic]") {
    Membership job = keeping(limits(2, 4), 2);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    auto orders = job.take_orders();
    CHECK_FALSE(orders.pause);
    CHECK(orders.reset_connections);
    wait_at_desk(job, {{h0, p1}, {h1, p0}});
    CHECK_FALSE(job.take_orders().query_commit);
    wait_at_desk(job, {{h1, p1}});
    CHECK(job.take_orders().query_commit == 1);
    job.host_ready_to_commit(h1, 1, kStart);
    CHECK(written(job.take_orders().begin) == "-");
    job.host_ready_to_commit(h0, 1, kStart);
    CHECK(written(job.take_orders().begin) == "0.1 1.0 1.1 ");
    CHECK(job.generation() == 2);
}

TEST_CASE("a newcomer is started before the others are told, and joins them", "[elastic]") {
    Membership job = keeping(limits(2, 4), 2);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    wait_at_desk(job, {{h0, p1}, {h1, p0}, {h1, p1}});
    for (const HostId host : {h0, h1}) job.host_ready_to_commit(host, 1, kStart);
    job.take_orders();
    for (const auto& [host, place] : {std::pair(h0, p1), {h1, p0}, {h1, p1}})
        job.process_says(host, place, RejoinState::rendezvoused, kStart);
    job.tick(kStart + 1s);
    auto orders = job.take_orders();
    CHECK(written(orders.prepare) == "0.1 0.0* 1.0 1.1 ");
    CHECK_FALSE(orders.notify);
    SECTION("when it is there") {
        job.process_says(h0, p0, RejoinState::held_at_start, kStart);
        CHECK(job.take_orders().notify);
        wait_at_desk(job, {{h1, p0}, {h1, p1}, {h0, p1}});
        const auto query_commit = job.take_orders().query_commit;
        for (const HostId host : {h0, h1}) job.host_ready_to_commit(host, *query_commit, kStart);
        CHECK(written(job.take_orders().begin) == "0.1 0.0 1.0 1.1 ");
    }
    SECTION("unless it fails, and the others are not disturbed") {
        job.rank_ended(h0, p0, {.own_fault = true}, kStart);
        orders = job.take_orders();
        CHECK_FALSE(orders.notify);
        CHECK_FALSE(orders.pause);
        CHECK(job.phase() == Phase::running);
        job.tick(job.next_deadline());
        CHECK(written(job.take_orders().prepare) == "0.1 0.0* 1.0 1.1 ");
    }
    SECTION("unless another is lost, which changes its rank: it is ended") {
        job.process_says(h0, p0, RejoinState::held_at_start, kStart);
        job.take_orders();
        job.rank_ended(h1, p0, {.why = "killed"}, kStart);
        orders = job.take_orders();
        CHECK(orders.kill == std::vector<std::pair<HostId, SlotIndex>>{{h0, p0}});
        wait_at_desk(job, {{h1, p1}, {h0, p1}});
        const auto query_commit = job.take_orders().query_commit;
        for (const HostId host : {h0, h1}) job.host_ready_to_commit(host, *query_commit, kStart);
        CHECK(written(job.take_orders().begin) == "0.1 1.1 ");
    }
}

TEST_CASE("a newcomer that never comes to be ready keeps nobody else out for ever", "[elastic]") {
    Membership job = keeping(limits(2, 6), 2);
    job.host_listed(h2, 1, kStart);
    job.host_ready(h2, kStart);
    job.tick(kStart + 1s);
    CHECK(written(job.take_orders().prepare) == "0.0 0.1 1.0 1.1 2.0* ");
    for (Deadline due = job.next_deadline(); due <= kStart + 301s; due = job.next_deadline())
        job.tick(due);
    auto orders = job.take_orders();
    CHECK(orders.kill == std::vector<std::pair<HostId, SlotIndex>>{{h2, p0}});
    job.rank_ended(h2, p0, {.why = "told to end"}, kStart + 302s);
    job.tick(kStart + 303s);
    CHECK(written(job.take_orders().prepare) == "0.0 0.1 1.0 1.1 2.0* ");
    SECTION("and news of its end that comes twice does not count for its successor") {
        job.rank_ended(h2, p0, {.why = "told to end", .was_none = true}, kStart + 304s);
        CHECK(job.take_orders().kill.empty());
        job.process_says(h2, p0, RejoinState::held_at_start, kStart + 305s);
        CHECK(job.take_orders().notify);
    }
}

TEST_CASE("who dies while it waits for its place gets none, and a silent host holds up nobody",
          "[elastic]") {
    Membership job = keeping(limits(2, 6), 3);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    wait_at_desk(job, {{h0, p1}, {h1, p0}, {h1, p1}, {h2, p0}, {h2, p1}});
    CHECK(job.take_orders().query_commit == 1);
    job.rank_ended(h1, p0, {.why = "killed"}, kStart);
    CHECK(job.take_orders().query_commit == 2);
    for (const HostId host : {h0, h1, h2})
        job.host_ready_to_commit(host, 1, kStart);  // of the first call
    CHECK(written(job.take_orders().begin) == "-");
    for (const HostId host : {h0, h1}) job.host_ready_to_commit(host, 2, kStart);
    job.host_lost(h2, "silent", kStart);
    CHECK(job.take_orders().query_commit == 3);
    for (const HostId host : {h0, h1}) job.host_ready_to_commit(host, 3, kStart);
    CHECK(written(job.take_orders().begin) == "0.1 1.1 ");
}

TEST_CASE("a loss before all have met restarts all, as the library would not survive it",
          "[elastic]") {
    Membership job = begun(limits(2, 4), 2);
    for (const RankAssignment& assigned : job.world())
        job.process_says(assigned.host, assigned.rank.place, RejoinState::supports_rejoin, kStart);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    CHECK(job.take_orders().pause);
}

TEST_CASE("all ranks that are killed at once start again", "[elastic]") {
    Membership job = keeping(limits(2, 4), 2);
    for (const HostId host : {h0, h1})
        for (const SlotIndex place : {p0, p1}) job.rank_ended(host, place, {.why = "k"}, kStart);
    CHECK(job.take_orders().pause);
    pause_all(job, kStart, {h0, h1});
    CHECK(written(job.take_orders().begin) == "0.0* 0.1* 1.0* 1.1* ");
}

TEST_CASE("below the minimum survivors are held, and go on with newcomers", "[elastic]") {
    JobPolicy four = limits(4, 4);
    four.timeout = 60s;
    Membership job = keeping(four, 2);
    job.host_lost(h0, "crashed", kStart);
    wait_at_desk(job, {{h1, p0}, {h1, p1}});
    auto orders = job.take_orders();
    CHECK_FALSE(orders.query_commit);
    CHECK_FALSE(orders.ended);
    SECTION("when a host comes") {
        job.host_ready(h0, kStart + 20s);
        CHECK(written(job.take_orders().prepare) == "1.0 1.1 0.0* 0.1* ");
        for (const SlotIndex place : {p0, p1})
            job.process_says(h0, place, RejoinState::held_at_start, kStart);
        const auto query_commit = job.take_orders().query_commit;
        REQUIRE(query_commit);
        for (const HostId host : {h0, h1}) job.host_ready_to_commit(host, *query_commit, kStart);
        CHECK(written(job.take_orders().begin) == "1.0 1.1 0.0 0.1 ");
    }
    SECTION("or the job ends") {
        job.tick(kStart + 60s);
        CHECK(job.take_orders().ended->cause == Cause::too_few);
    }
}

TEST_CASE("when ranks have ended well, those that ask for a place are not wanted any more",
          "[elastic]") {
    Membership job = keeping(limits(2, 4), 2);
    job.rank_ended(h0, p0, {.well = true}, kStart);
    wait_at_desk(job, {{h0, p1}, {h1, p0}});
    CHECK_FALSE(job.take_orders().ended);
    wait_at_desk(job, {{h1, p1}});
    CHECK(job.take_orders().ended->cause == Cause::finished);
}

TEST_CASE("a rank that ends well keeps newcomers out, and the others go on", "[elastic]") {
    Membership job = keeping(limits(1, 6), 2);
    job.host_listed(h2, 1, kStart);
    job.host_ready(h2, kStart);
    job.tick(kStart + 1s);
    CHECK(written(job.take_orders().prepare) == "0.0 0.1 1.0 1.1 2.0* ");
    const std::vector<std::pair<HostId, SlotIndex>> newcomer{{h2, p0}};
    SECTION("while one of them imports") {
        job.rank_ended(h0, p0, {.well = true}, kStart + 2s);
        CHECK(job.take_orders().kill == newcomer);
        job.process_says(h2, p0, RejoinState::held_at_start, kStart + 3s);  // before it has ended
        job.rank_ended(h2, p0, {.why = "told to end"}, kStart + 4s);
        job.tick(kStart + 10s);
        const auto orders = job.take_orders();
        CHECK_FALSE(orders.notify);
        CHECK_FALSE(orders.prepare);
    }
    SECTION("among themselves, if they have been asked to leave their world by then") {
        job.process_says(h2, p0, RejoinState::held_at_start, kStart + 2s);
        CHECK(job.take_orders().notify);
        job.rank_ended(h0, p0, {.well = true}, kStart + 3s);
        CHECK(job.take_orders().kill == newcomer);
        wait_at_desk(job, {{h0, p1}});
        CHECK_FALSE(job.take_orders().reset_connections);  // the others still compute
        meet_again(job, {{h1, p0}, {h1, p1}}, {h0, h1});
        CHECK(written(job.take_orders().begin) == "0.1 1.0 1.1 ");
        job.tick(kStart + 60s);
        CHECK_FALSE(job.take_orders().prepare);
    }
    SECTION("among themselves, if one of them is lost") {
        job.rank_ended(h0, p0, {.well = true}, kStart + 3s);
        job.rank_ended(h1, p0, {.why = "killed"}, kStart + 4s);
        job.take_orders();
        meet_again(job, {{h0, p1}, {h1, p1}}, {h0, h1});
        CHECK(written(job.take_orders().begin) == "0.1 1.1 ");
    }
}

TEST_CASE("when all ranks have ended well, also while they wait for a place, the job has succeeded",
          "[elastic]") {
    Membership job = keeping(limits(1, 4), 2);
    for (const auto& [host, place] : {std::pair(h0, p0), {h0, p1}, {h1, p0}})
        job.rank_ended(host, place, {.well = true}, kStart);
    CHECK_FALSE(job.take_orders().ended);
    SECTION("none has failed") {
        if (GENERATE(false, true)) job.host_delisted(h1, kStart);
        job.rank_ended(h1, p1, {.well = true}, kStart);
        CHECK(job.take_orders().ended->cause == Cause::finished);
    }
    SECTION("unless one has failed") {
        job.rank_ended(h1, p1, {.why = "killed"}, kStart);
        CHECK(job.take_orders().pause);
    }
}

TEST_CASE("a rank that ends well before it has met the others is missing", "[elastic]") {
    Membership job = keeping(limits(1, 4), 2);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    job.take_orders();
    meet_again(job, {{h0, p1}, {h1, p0}, {h1, p1}}, {h0, h1});
    CHECK(written(job.take_orders().begin) == "0.1 1.0 1.1 ");
    for (const SlotIndex place : {p0, p1})
        job.process_says(h1, place, RejoinState::rendezvoused, kStart);
    job.rank_ended(h0, p1, {.well = true}, kStart);
    CHECK(job.take_orders().reset_connections);
    meet_again(job, {{h1, p0}, {h1, p1}}, {h0, h1});
    CHECK(written(job.take_orders().begin) == "1.0 1.1 ");
}

TEST_CASE("a program that fails by itself is blamed also after a host was lost", "[elastic]") {
    Membership job = keeping(limits(1, 6), 3);
    job.host_lost(h2, "crashed", kStart);
    job.take_orders();
    meet_again(job, {{h0, p0}, {h0, p1}, {h1, p0}, {h1, p1}}, {h0, h1});
    for (const auto& [host, place] : {std::pair(h0, p0), {h0, p1}, {h1, p0}}) {
        CHECK_FALSE(job.take_orders().ended);
        for (const RankAssignment& assigned : job.world())
            job.process_says(assigned.host, assigned.rank.place, RejoinState::rendezvoused, kStart);
        job.rank_ended(host, place, {.own_fault = true, .why = "failed"}, kStart + 1s);
        for (const RankAssignment& assigned : job.world())
            wait_at_desk(job, {{assigned.host, assigned.rank.place}});
        if (const auto query_commit = job.take_orders().query_commit)
            for (const HostId each : {h0, h1})
                job.host_ready_to_commit(each, *query_commit, kStart + 1s);
    }
    CHECK(job.phase() == Phase::ended);
}

TEST_CASE("who does not ask for a place long after a loss is ended", "[elastic]") {
    Membership job = keeping(limits(2, 4), 2);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    wait_at_desk(job, {{h0, p1}, {h1, p0}});
    job.take_orders();
    while (job.next_deadline() < kStart + 300s) job.tick(job.next_deadline());
    job.tick(kStart + 300s);
    const auto orders = job.take_orders();
    CHECK(orders.kill == std::vector<std::pair<HostId, SlotIndex>>{{h1, p1}});
    REQUIRE(orders.query_commit);  // the others go on at once
    for (const HostId host : {h0, h1})
        job.host_ready_to_commit(host, *orders.query_commit, kStart + 300s);
    CHECK(written(job.take_orders().begin) == "0.1 1.0 ");
}

TEST_CASE("who was ended because it did not ask for a place has not done its part", "[elastic]") {
    Membership job = keeping(limits(1, 4), 2);
    job.host_listed(h0, 1, kStart);
    REQUIRE(job.take_orders().notify);
    wait_at_desk(job, {{h0, p0}, {h0, p1}, {h1, p0}});
    job.tick(kStart + 300s);
    CHECK(job.take_orders().kill.size() == 1);
    for (const auto& [host, place] : {std::pair(h0, p0), {h0, p1}, {h1, p0}})
        job.rank_ended(host, place, {.well = true}, kStart + 301s);
    CHECK(job.take_orders().pause);
}

TEST_CASE("--refill never leaves the host of a failed rank alone for a while", "[elastic]") {
    JobPolicy never = limits(2, 6);
    never.refill = Refill::never;
    Membership job = keeping(never, 3);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    wait_at_desk(job, {{h0, p1}, {h1, p0}, {h1, p1}, {h2, p0}, {h2, p1}});
    const auto query_commit = job.take_orders().query_commit;
    for (const HostId host : {h0, h1, h2}) job.host_ready_to_commit(host, *query_commit, kStart);
    const auto orders = job.take_orders();
    CHECK(written(orders.begin) == "1.0 1.1 2.0 2.1 ");
    CHECK(orders.kill == std::vector<std::pair<HostId, SlotIndex>>{{h0, p1}});
}

TEST_CASE("--refill wait has survivors wait for a new process in the slot, but not for long",
          "[elastic]") {
    JobPolicy wait = limits(2, 4);
    wait.refill = Refill::wait;
    Membership job = keeping(wait, 2);
    job.rank_ended(h0, p0, {.why = "killed"}, kStart);
    wait_at_desk(job, {{h0, p1}, {h1, p0}, {h1, p1}});
    auto orders = job.take_orders();
    CHECK_FALSE(orders.query_commit);
    CHECK(written(orders.prepare) == "0.1 0.0* 1.0 1.1 ");
    SECTION("it comes") {
        job.process_says(h0, p0, RejoinState::held_at_start, kStart + 2s);
        CHECK(job.take_orders().query_commit);
    }
    SECTION("it does not") {
        job.tick(kStart + 10s);
        orders = job.take_orders();
        CHECK(orders.kill == std::vector<std::pair<HostId, SlotIndex>>{{h0, p0}});
        REQUIRE(orders.query_commit);
        for (const HostId host : {h0, h1})
            job.host_ready_to_commit(host, *orders.query_commit, kStart);
        CHECK(written(job.take_orders().begin) == "0.1 1.0 1.1 ");
    }
}

}  // namespace dtrun::membership
