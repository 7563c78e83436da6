#include "launcher/inspect/deadlock_detector.h"
#include "launcher/inspect/stall_log.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"

namespace dtrun {

using namespace inspect;
namespace {

using namespace std::chrono_literals;

const Deadline kStart = Deadline() + 1h;

DeadlockDetector four_ranks(std::optional<std::chrono::milliseconds> limit = {}) {
    return {4, [](Rank rank) { return fmt::format("s{}", std::to_underlying(rank) / 2 + 1); },
            limit};
}

RankWait at_start(Rank rank, std::string what = "hvd.init(): all ranks to arrive") {
    RankWait wait;
    wait.rank = rank;
    wait.what = std::move(what);
    wait.starting = true;
    return wait;
}

RankWait in_mpi(Rank rank, MpiWait mpi) {
    RankWait wait = at_start(rank, mpi <= MpiWait::pmix ? "PMIx" : "PMI");
    wait.mpi = mpi;
    return wait;
}

/// Both hosts say at `now` that three ranks have waited since kStart.
void still_wait(DeadlockDetector& watch, Deadline now) {
    std::vector<RankWait> waits;
    for (const std::uint32_t rank : {0, 1, 2}) {
        waits.push_back(at_start(Rank{rank}));
        waits.back().waited_ms = static_cast<std::uint32_t>((now - kStart) / 1ms);
    }
    watch.waits(HostId{1}, {waits[2]}, now);
    waits.pop_back();
    watch.waits(HostId{0}, waits, now);
}

}  // namespace

TEST_CASE("ranks that wait for one that has ended are told of it, and it is named", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.waits(HostId{0}, {at_start(Rank{0}), at_start(Rank{1})}, kStart);
    watch.waits(HostId{1}, {at_start(Rank{2})}, kStart);
    CHECK_FALSE(watch.look(kStart + 5s).has_value());
    watch.rank_ended(Rank{3}, 43, MpiUse::none, kStart + 5s);
    still_wait(watch, kStart + 6s);
    CHECK_FALSE(watch.look(kStart + 6s).has_value());  // that they have met may be under way
    still_wait(watch, kStart + 7s);
    const auto verdict = watch.look(kStart + 7s);
    REQUIRE(verdict.has_value());
    CHECK(verdict->end);
    CHECK_FALSE(verdict->hangs);  // the cause is known, and the ranks' stacks are of no use
    CHECK(verdict->text ==
          "rank 3 on s2 (pid 43) ended without having met the others; ranks 0-2 wait for "
          "hvd.init(): all "
          "ranks to arrive");
}

TEST_CASE("many ranks that have ended are all named, in short", "[waits]") {
    DeadlockDetector watch(
        64, [](Rank rank) { return fmt::format("s{}", std::to_underlying(rank) % 32); },
        std::nullopt);
    for (std::uint32_t rank = 2; rank < 64; ++rank)
        watch.rank_ended(Rank{rank}, 43, MpiUse::none, kStart);
    for (const auto now : {kStart, kStart + 5s})
        for (const std::uint32_t host : {0, 1}) {
            RankWait wait = at_start(Rank{host});
            wait.waited_ms = static_cast<std::uint32_t>((now - kStart) / 1ms);
            watch.waits(HostId{host}, {wait}, now);
        }
    const auto verdict = watch.look(kStart + 5s);
    REQUIRE(verdict.has_value());
    CHECK(verdict->text ==
          "ranks 2-63 on s[2-31,0-1] (32) ended without having met the others; ranks 0-1 wait for "
          "hvd.init(): all ranks to arrive");
}

TEST_CASE("ranks of a host that is not heard may have met the one that has ended", "[waits]") {
    DeadlockDetector watch = four_ranks();
    still_wait(watch, kStart + 5s);
    watch.rank_ended(Rank{3}, 43, MpiUse::none, kStart + 5s);
    watch.waits(HostId{1}, {at_start(Rank{2})}, kStart + 7s);
    CHECK_FALSE(watch.look(kStart + 9s).has_value());
    still_wait(watch, kStart + 9s);
    CHECK(watch.look(kStart + 9s).value().end);
}

TEST_CASE("a report that was long on its way is no news of who waits", "[waits]") {
    DeadlockDetector watch = four_ranks();
    still_wait(watch, kStart + 4s);
    watch.rank_ended(Rank{3}, 43, MpiUse::none, kStart + 5s);
    // Made at 4.5 s, before the end; it comes at 7 s.
    std::vector<RankWait> late{at_start(Rank{0}), at_start(Rank{1}), at_start(Rank{2})};
    for (RankWait& wait : late) wait.waited_ms = 4'500;
    watch.waits(HostId{0}, {late[0], late[1]}, kStart + 7s);
    watch.waits(HostId{1}, {late[2]}, kStart + 7s);
    CHECK_FALSE(watch.look(kStart + 7s).has_value());
    still_wait(watch, kStart + 8s);
    CHECK(watch.look(kStart + 8s).has_value());
}

TEST_CASE("a rank that has ended is no reason while another one does not wait", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.waits(HostId{0}, {at_start(Rank{0}), at_start(Rank{1})}, kStart);
    watch.rank_ended(Rank{3}, 43, MpiUse::none, kStart - 2s);
    CHECK_FALSE(watch.look(kStart + 9s).has_value());
    watch.waits(HostId{1}, {at_start(Rank{2})}, kStart + 9s);
    CHECK_FALSE(watch.look(kStart + 9s + 500ms).has_value());  // its end may be under way
    CHECK(watch.look(kStart + 11s).has_value());
}

TEST_CASE("a rank that waits twice does not stand for another one", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.rank_ended(Rank{3}, 43, MpiUse::none, kStart - 2s);
    watch.waits(HostId{0},
                {at_start(Rank{0}), at_start(Rank{0}), at_start(Rank{1}), at_start(Rank{3})},
                kStart);
    CHECK_FALSE(watch.look(kStart + 9s).has_value());
    watch.waits(HostId{1}, {at_start(kNoRank)}, kStart);  // it may be anybody's
    CHECK_FALSE(watch.look(kStart + 9s).has_value());
}

TEST_CASE("waits that are no part of the start are only described", "[waits]") {
    DeadlockDetector watch = four_ranks(1s);
    RankWait wait = at_start(Rank{1}, "torch's store: key checkpoint");
    wait.starting = false;
    watch.waits(HostId{0}, {wait}, kStart);
    for (const std::uint32_t rank : {0, 2, 3})
        watch.rank_ended(Rank{rank}, 40 + rank, MpiUse::none, kStart);
    CHECK_FALSE(watch.look(kStart + 1h).has_value());
    CHECK(watch.describe(kStart) ==
          std::vector<std::string>{"rank 1: torch's store: key checkpoint"});
}

TEST_CASE("a wait for a rank that the job does not have ends it", "[waits]") {
    DeadlockDetector watch = four_ranks();
    RankWait wait = at_start(Rank{2}, "torch's store: key default_pg/0//4");
    wait.hopeless = true;
    watch.waits(HostId{1}, {wait}, kStart);
    CHECK_FALSE(watch.look(kStart + 1s).has_value());
    const auto verdict = watch.look(kStart + 2s);
    REQUIRE(verdict.has_value());
    CHECK(verdict->end);
    CHECK(
        verdict->text ==
        "rank 2 waits for torch's store: key default_pg/0//4, which is of a rank that this job of "
        "4 does not have; was the program told another world size?");
}

TEST_CASE("--init-timeout names who has not come", "[waits]") {
    DeadlockDetector watch = four_ranks(2s);
    watch.waits(HostId{0}, {at_start(Rank{0})}, kStart);
    watch.waits(HostId{1}, {at_start(Rank{3})}, kStart + 1s);
    CHECK_FALSE(watch.look(kStart + 1900ms).has_value());
    const auto verdict = watch.look(kStart + 2s);
    REQUIRE(verdict.has_value());
    CHECK(verdict->hangs);
    CHECK(verdict->end);
    CHECK(verdict->text ==
          "rank 0 has waited 2 s (--init-timeout) for hvd.init(): all ranks to arrive; not there: "
          "rank 1 on s1 and rank 2 on s2");
}

TEST_CASE("who waited is told as it was when the job was ended for it", "[waits]") {
    DeadlockDetector watch = four_ranks(2s);
    watch.waits(HostId{0}, {at_start(Rank{0})}, kStart);
    watch.waits(HostId{1}, {at_start(Rank{2}), at_start(Rank{3})}, kStart);
    REQUIRE(watch.look(kStart + 2s).has_value());
    watch.waits(HostId{1}, {at_start(Rank{2})}, kStart + 3s);  // the other one has been ended
    const std::vector<std::string> all{"ranks 0, 2-3: hvd.init(): all ranks to arrive"};
    CHECK(watch.describe(kStart) == all);
    watch.begin(4);
    watch.waits(HostId{1}, {at_start(Rank{2})}, kStart + 4s);
    CHECK(watch.describe(kStart).size() == 1);
}

TEST_CASE("without a limit a long wait is told of once", "[waits]") {
    DeadlockDetector watch = four_ranks();
    RankWait unknown = at_start(kNoRank);
    watch.waits(HostId{0}, {at_start(Rank{0}), unknown}, kStart);
    CHECK_FALSE(watch.look(kStart + 9s).has_value());
    const auto verdict = watch.look(kStart + 10s);
    REQUIRE(verdict.has_value());
    CHECK_FALSE(verdict->end);
    CHECK(verdict->text ==
          "rank 0 and 1 process have waited 10 s for hvd.init(): all ranks to arrive");
    CHECK_FALSE(watch.look(kStart + 1h).has_value());
    watch.begin(4);
    CHECK(watch.describe(kStart).empty());
}

TEST_CASE("once ranks use MPI, one that ends without it ends the job", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.rank_ended(Rank{3}, 43, MpiUse::none, kStart);
    CHECK_FALSE(watch.look(kStart).has_value());
    watch.mpi_used();
    auto verdict = watch.look(kStart);
    REQUIRE(verdict.has_value());
    CHECK(verdict->end);
    CHECK(verdict->text ==
          "rank 3 on s2 (pid 43) ended without MPI_Init, which other ranks have called");
    watch.begin(4);
    watch.mpi_used();
    watch.rank_ended(Rank{1}, 41, MpiUse::finalized, kStart);
    CHECK_FALSE(watch.look(kStart).has_value());
    watch.rank_ended(Rank{0}, 40, MpiUse::initialized, kStart);
    verdict = watch.look(kStart);
    REQUIRE(verdict.has_value());
    CHECK(verdict->text ==
          "rank 0 on s1 (pid 40) ended without MPI_Finalize, in which the others wait for it");
}

TEST_CASE("nobody waits for the last rank to call MPI_Finalize", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.mpi_used();
    for (const std::uint32_t rank : {0, 1, 2})
        watch.rank_ended(Rank{rank}, 40 + rank, MpiUse::finalized, kStart);
    watch.rank_ended(Rank{3}, 43, MpiUse::initialized, kStart);
    CHECK_FALSE(watch.look(kStart).has_value());
}

TEST_CASE("ranks that wait for different things are told each with its own", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.waits(HostId{0}, {at_start(Rank{0}, "PMIx"), at_start(Rank{1}, "a key")}, kStart);
    watch.waits(HostId{1}, {at_start(Rank{2}, "PMIx")}, kStart);
    CHECK(watch.look(kStart + 10s).value().text ==
          "ranks 0, 2 have waited 10 s for PMIx, and rank 1 for a key; not there: rank 3 on s2");
    watch.begin(4);
    watch.rank_ended(Rank{3}, 43, MpiUse::finalized, kStart - 2s);
    watch.waits(HostId{0}, {at_start(Rank{0}, "a"), at_start(Rank{1}, "b")}, kStart);
    watch.waits(HostId{1}, {at_start(Rank{2}, "b")}, kStart);
    CHECK(watch.look(kStart + 2s).value().text ==
          "rank 3 on s2 (pid 43) ended without having met the others; rank 0 waits for a, and "
          "ranks 1-2 for b");
}

TEST_CASE("ranks of two MPI libraries end the job as soon as they cannot meet", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.waits(HostId{0}, {in_mpi(Rank{0}, MpiWait::pmix), in_mpi(Rank{1}, MpiWait::pmix)},
                kStart);
    CHECK_FALSE(watch.look(kStart + 5s).has_value());
    watch.waits(HostId{1}, {in_mpi(Rank{2}, MpiWait::pmi1)}, kStart + 5s);
    CHECK_FALSE(watch.look(kStart + 6s).has_value());  // news may be under way
    const auto verdict = watch.look(kStart + 7s);
    REQUIRE(verdict.has_value());
    CHECK(verdict->end);
    CHECK_FALSE(verdict->hangs);
    CHECK(verdict->text ==
          "ranks 0-1 use Open MPI (PMIx), rank 2 MPICH or Intel MPI (PMI-1): all ranks of a job "
          "need the same MPI library; see what ldd says of the programs of rank 0 on s1 and rank 2 "
          "on s2, and PATH, LD_LIBRARY_PATH and modules there");
}

TEST_CASE("who has only begun with PMIx may still come to PMI", "[waits]") {
    DeadlockDetector watch = four_ranks();
    const RankWait begun = in_mpi(Rank{0}, MpiWait::pmix_client);
    watch.waits(HostId{1}, {in_mpi(Rank{2}, MpiWait::pmi2), in_mpi(Rank{3}, MpiWait::pmi2)},
                kStart);
    watch.waits(HostId{0}, {begun}, kStart);
    CHECK_FALSE(watch.look(kStart + 9s).has_value());  // rank 1 has not asked
    watch.waits(HostId{0}, {begun, in_mpi(Rank{0}, MpiWait::pmi2), in_mpi(Rank{1}, MpiWait::pmi2)},
                kStart);
    CHECK_FALSE(watch.look(kStart + 9s).has_value());  // rank 0 uses both
    watch.waits(HostId{0}, {begun, in_mpi(Rank{1}, MpiWait::pmix_client)}, kStart);
    CHECK(watch.look(kStart + 9s)
              .value()
              .text.starts_with(
                  "ranks 0-1 use Open MPI (PMIx), ranks 2-3 MPICH or MVAPICH (PMI-2): "));
}

TEST_CASE("a rank that waits in PMI beside one that never calls MPI_Init is left alone",
          "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.waits(HostId{1}, {in_mpi(Rank{2}, MpiWait::pmi1), at_start(Rank{3})}, kStart);
    watch.waits(HostId{0}, {at_start(Rank{0}), at_start(Rank{1})}, kStart);
    const auto verdict = watch.look(kStart + 10s);
    REQUIRE(verdict.has_value());
    CHECK_FALSE(verdict->end);
}

TEST_CASE("a refused MPI_Comm_spawn is told again while its rank runs, and never ends the job",
          "[waits]") {
    DeadlockDetector watch = four_ranks(1s);
    watch.mpi_used();
    watch.spawn_refused(Rank{0}, kStart);
    watch.spawn_refused(Rank{2}, kStart + 5s);
    CHECK_FALSE(watch.look(kStart + 59s).has_value());
    const auto first = watch.look(kStart + 60s);
    REQUIRE(first.has_value());
    CHECK_FALSE(first->end);
    CHECK(first->text ==
          "ranks 0, 2 were refused MPI_Comm_spawn 1 min ago and still run; if nothing goes on, end "
          "the job and start all ranks at once, with -np");
    CHECK_FALSE(watch.look(kStart + 119s).has_value());
    watch.rank_ended(Rank{2}, 42, MpiUse::finalized, kStart);
    const auto second = watch.look(kStart + 121s);
    REQUIRE(second.has_value());
    CHECK(second->text.starts_with("rank 0 was refused MPI_Comm_spawn 2 min ago and still runs;"));
    CHECK_FALSE(watch.look(kStart + 239s).has_value());
    CHECK(watch.look(kStart + 1h).value().text.find(" 60 min ago ") != std::string::npos);
    CHECK_FALSE(watch.look(kStart + 64min - 1s).has_value());  // what was missed is not made up for
    CHECK(watch.look(kStart + 64min).has_value());
    watch.rank_ended(Rank{0}, 40, MpiUse::finalized, kStart);
    CHECK_FALSE(watch.look(kStart + 24h).has_value());
}

TEST_CASE("the report names who was refused MPI_Comm_spawn in this generation", "[waits]") {
    DeadlockDetector watch = four_ranks();
    watch.spawn_refused(Rank{1}, kStart);
    CHECK(watch.describe(kStart) ==
          std::vector<std::string>{"rank 1: refused MPI_Comm_spawn, perhaps for what that was to "
                                   "start"});
    watch.begin(4);
    CHECK(watch.describe(kStart).empty());
    CHECK_FALSE(watch.look(kStart + 1h).has_value());
}

TEST_CASE(
    "who waits for a minute, or for what a rank calls a stall, is told once, and when it goes on",
    "[waits][stall]") {
    DeadlockDetector watch = four_ranks();
    StallLog log;
    const auto told = [&](Deadline now) {
        std::vector<std::string> texts;
        for (const auto& [wait, over] : log.look(watch.long_waits(now), now))
            texts.push_back((over ? "over: " : "") + wait.sentence(now));
        return texts;
    };
    using Texts = std::vector<std::string>;
    RankWait key = at_start(Rank{1}, "torch's store: key checkpoint");
    RankWait stall = at_start(Rank{2}, "\"a\"; rank 3 has not asked for it");
    key.starting = stall.starting = false;
    stall.stalled = stall.told = true;
    watch.waits(HostId{0}, {key}, kStart);
    watch.waits(HostId{1}, {stall}, kStart + 1s);
    CHECK(told(kStart + 1s).empty());  // other hosts may be about to say the same
    stall.rank = Rank{0};
    watch.waits(HostId{0}, {key, stall}, kStart + 2s);
    CHECK(told(kStart + 3s) == Texts{"ranks 0, 2 wait for \"a\"; rank 3 has not asked for it"});
    CHECK(told(kStart + 59s).empty());
    CHECK(told(kStart + 60s).empty());
    CHECK(told(kStart + 62s) == Texts{"rank 1 has waited 62 s for torch's store: key checkpoint"});
    CHECK(told(kStart + 1h).empty());
    CHECK(watch.describe(kStart + 90s) ==
          Texts{"ranks 0, 2: \"a\"; rank 3 has not asked for it, for 89 s",
                "rank 1: torch's store: key checkpoint, for 90 s"});
    watch.waits(HostId{0}, {key}, kStart + 2h);
    CHECK(told(kStart + 2h).empty());  // one of them still waits
    watch.waits(HostId{0}, {}, kStart + 2h);
    watch.waits(HostId{1}, {}, kStart + 2h);
    const Texts over = told(kStart + 2h);
    REQUIRE(over.size() == 2);
    CHECK(over[0].starts_with("over: rank 2 has waited 7199 s for \"a\""));
    CHECK(over[1].starts_with("over: rank 1 has waited 7200 s for torch's store"));
    watch.waits(HostId{1}, {stall}, kStart + 3h);
    CHECK(told(kStart + 3h).empty());
    CHECK(told(kStart + 3h + 2s).size() == 1);  // it is another time
    watch.begin(4);
    CHECK(told(kStart + 3h + 3s).size() == 1);
}

}  // namespace dtrun
