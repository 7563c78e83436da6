#include "launcher/head/job.h"
#include "launcher/plan/exit_code.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>

namespace dtrun {

using namespace head;
using namespace report;
using namespace plan;
namespace {

using namespace std::chrono_literals;
using Cause = JobOutcome::Cause;
constexpr HostId h0{0}, h1{1}, h2{2};

Exited exited(std::uint32_t rank, int code, int signal = 0, int sent = 0) {
    Exited made;
    made.rank = Rank{rank};
    made.pid = 1'000 + rank;
    made.code = code;
    made.signal = signal;
    made.sent_signal = sent;
    return made;
}

Exited in_mpi(Exited exited, MpiUse use) {
    exited.mpi = use;
    return exited;
}

/// Two hosts with two ranks each, all of them running.
Job running_job(JobOptions options = {}) {
    Job job({2, 2}, options);
    job.host_ready(h0);
    CHECK_FALSE(job.take_start());
    job.host_ready(h1);
    CHECK(job.take_start());
    CHECK_FALSE(job.take_start());
    return job;
}

void all_done(Job& job) {
    job.host_done(h0, 0);
    CHECK_FALSE(job.over());
    job.host_done(h1, 0);
    CHECK(job.over());
}

}  // namespace

TEST_CASE("a host that comes after the job was given up for it is told as one that has failed",
          "[job]") {
    Job job({2, 2}, {});
    job.host_failed({h0, StartFailure::timed_out, "it did not connect back"});
    job.host_ready(h1);
    REQUIRE(job.take_stop());
    job.host_ready(h0);
    REQUIRE(job.outcome().host_failures.size() == 1);
    CHECK(job.outcome().host_failures.front().host == h0);
    CHECK(job.outcome().cause == Cause::cannot_start);
}

TEST_CASE("a job whose ranks all exit 0 ends hosts politely and succeeds", "[job]") {
    Job job = running_job();
    for (const std::uint32_t rank : {3u, 0u, 1u})
        job.rank_exited(HostId{rank / 2}, exited(rank, 0));
    CHECK_FALSE(job.take_stop().has_value());
    job.rank_exited(h1, exited(2, 0));
    const auto order = job.take_stop();
    REQUIRE(order.has_value());
    CHECK(order->signal == SIGTERM);
    CHECK(order->grace == 5s);
    all_done(job);
    CHECK(exit_code(job.outcome()) == 0);
}

TEST_CASE("all ranks of a job run when each of its hosts has started them", "[job]") {
    Job job = running_job();
    CHECK_FALSE(job.all_run());
    job.ranks_started(h1);
    CHECK_FALSE(job.all_run());
    job.ranks_started(h0);
    CHECK(job.all_run());
    job.begin({0, 2});
    CHECK_FALSE(job.all_run());
    job.ranks_started(h1);
    CHECK(job.all_run());
    job.pausing();
    CHECK_FALSE(job.all_run());
    job.begin({2, 2});
    job.ranks_started(h0);
    job.host_lost(h1, "its power is gone");  // which ends the job
    CHECK_FALSE(job.all_run());
    Job others_go_on = running_job({.outlives_hosts = true});
    others_go_on.ranks_started(h0);
    others_go_on.host_lost(h1, "its power is gone");
    CHECK(others_go_on.all_run());
}

TEST_CASE("a failure makes all ranks start again while restarts are left", "[job]") {
    Job job = running_job({false, 3s, 1});
    job.rank_exited(h0, exited(0, 0));
    job.rank_exited(h1, exited(2, 7));
    CHECK_FALSE(job.take_stop().has_value());
    const auto because = job.take_restart();
    REQUIRE(because.has_value());
    CHECK(because->rank == Rank{2});
    CHECK_FALSE(job.take_restart().has_value());
    job.rank_exited(h1, exited(3, 0, SIGTERM, SIGTERM));  // ended for the next start
    job.rank_exited(h0, exited(1, 5));
    CHECK_FALSE(job.take_restart().has_value());
    job.begin({2, 2});
    job.rank_exited(h0, exited(1, 9));
    REQUIRE(job.take_stop().has_value());
    for (const std::uint32_t rank : {0u, 2u, 3u})
        job.rank_exited(HostId{rank / 2}, exited(rank, 0, SIGTERM, SIGTERM));
    all_done(job);
    CHECK(exit_code(job.outcome()) == 9);
    CHECK(job.outcome().restarts == 1);
    CHECK(job.outcome().victims == 3);
}

TEST_CASE("a job that is ended while its ranks start again ends", "[job]") {
    Job job = running_job({false, 3s, 5});
    job.rank_exited(h1, exited(2, 7));
    REQUIRE(job.take_restart().has_value());
    job.interrupt(SIGINT);
    CHECK(job.take_stop().has_value());
    all_done(job);
    CHECK(exit_code(job.outcome()) == 130);
}

TEST_CASE("ranks that wait in vain end the job, with a code of its own", "[job]") {
    Job job = running_job();
    job.end_because(JobOutcome::Cause::stuck, "rank 3 ended without having met the others");
    REQUIRE(job.take_stop().has_value());
    for (const std::uint32_t rank : {0u, 1u, 2u, 3u})
        job.rank_exited(HostId{rank / 2}, exited(rank, 0, SIGTERM, SIGTERM));
    all_done(job);
    CHECK(job.outcome().cause == Cause::stuck);
    CHECK(exit_code(job.outcome()) == kExitStuck);
}

TEST_CASE("what MPI_Abort was told makes an exit code, which is no success", "[job]") {
    for (const auto& [told, code] :
         {std::pair{7, 7}, {0, 1}, {255, 255}, {256, 1}, {300, 44}, {-1, 255}}) {
        Job job = running_job();
        job.rank_exited(h1, in_mpi(exited(2, told), MpiUse::aborted));
        CHECK(exit_code(job.outcome()) == code);
    }
}

TEST_CASE("ranks that ended well before the first failure are remembered, though told late",
          "[job]") {
    const auto after = [](Exited exited, std::int64_t ran_ns) {
        exited.ran_ns = ran_ns;
        return exited;
    };
    const auto ended_well = [](const Job& job) {
        std::vector<std::uint32_t> ranks;
        for (const auto& ended : job.outcome().ended_well)
            ranks.push_back(std::to_underlying(ended.rank));
        return ranks;
    };
    Job job = running_job({true, 3s});
    job.rank_exited(h0, after(exited(0, 0), 900));
    job.rank_exited(h1, after(exited(3, 1), 800));
    job.rank_exited(h1, after(exited(2, 0), 700));
    job.rank_exited(h0, after(exited(1, 0), 1'000));  // after it
    CHECK(ended_well(job) == std::vector<std::uint32_t>{0, 2});

    Job again = running_job({false, 3s, 1});
    again.rank_exited(h0, exited(0, 0));
    again.rank_exited(h1, exited(2, 7));
    CHECK(ended_well(again) == std::vector<std::uint32_t>{0});
    again.begin({2, 2});
    CHECK(ended_well(again).empty());
}

TEST_CASE("the first failure names the outcome, and what dtrun ends after it are victims",
          "[job]") {
    Job job = running_job({false, 3s});
    job.rank_exited(h1, exited(2, 7));
    CHECK(job.take_stop()->grace == 3s);
    job.rank_exited(h0, exited(0, 0, SIGTERM, SIGTERM));
    job.rank_exited(h0, exited(1, 0, SIGKILL, SIGKILL));
    job.rank_exited(h1, exited(3, 9));  // fell by itself
    CHECK_FALSE(job.take_stop().has_value());
    all_done(job);
    const JobOutcome& outcome = job.outcome();
    CHECK(outcome.cause == Cause::rank_failed);
    CHECK(outcome.first->rank == Rank{2});
    CHECK(outcome.victims == 2);
    CHECK(outcome.killed == 1);
    CHECK(outcome.also_failed == 1);
    CHECK(exit_code(outcome) == 7);
}

TEST_CASE("the rank that calls MPI_Abort first names the outcome, even if others exit before it",
          "[job]") {
    Job job = running_job();
    job.rank_aborts(Rank{2});
    job.rank_aborts(Rank{0});  // because of rank 2
    job.rank_exited(h0, exited(0, 14));
    CHECK(job.take_stop().has_value());
    job.rank_exited(h0, exited(1, 1, 0, SIGTERM));
    job.rank_exited(h1, exited(2, 7, 0, SIGTERM));
    job.rank_exited(h1, exited(3, 0, SIGTERM, SIGTERM));
    all_done(job);
    REQUIRE(job.outcome().first.has_value());
    CHECK(job.outcome().first->rank == Rank{2});
    CHECK(job.outcome().also_failed == 1);
    CHECK(job.outcome().victims == 2);
    CHECK(exit_code(job.outcome()) == 7);
}

TEST_CASE(
    "a rank that died in MPI names the outcome, even if others called MPI_Abort before it is heard "
    "of",
    "[job]") {
    Job job = running_job();
    job.rank_aborts(Rank{0});
    SECTION("by a signal, after which those that called it are heard of") {
        job.rank_exited(h1, in_mpi(exited(2, 0, SIGKILL), MpiUse::initialized));
        REQUIRE(job.take_stop().has_value());
        job.rank_exited(h0, in_mpi(exited(0, 14), MpiUse::aborted));
        job.left_mpi("rank 2 ended without MPI_Finalize");
        CHECK(job.outcome().cause == Cause::rank_failed);
        CHECK(job.outcome().first->rank == Rank{2});
        CHECK(exit_code(job.outcome()) == 137);
        CHECK(job.outcome().also_failed == 1);
        return;
    }
    job.rank_exited(h0, in_mpi(exited(0, 14), MpiUse::aborted));
    REQUIRE(job.take_stop().has_value());
    SECTION("by a signal") {
        job.rank_exited(h1, in_mpi(exited(2, 0, SIGSEGV), MpiUse::initialized));
        job.rank_exited(h1, in_mpi(exited(3, 14), MpiUse::aborted));
        CHECK(job.outcome().cause == Cause::rank_failed);
        CHECK(job.outcome().first->rank == Rank{2});
        CHECK(exit_code(job.outcome()) == 139);
        CHECK(job.outcome().also_failed == 2);
    }
    SECTION("well, without MPI_Finalize") {
        job.rank_exited(h1, in_mpi(exited(2, 0), MpiUse::initialized));
        job.left_mpi("rank 2 ended without MPI_Finalize");
        job.rank_exited(h1, in_mpi(exited(3, 14), MpiUse::aborted));
        CHECK(job.outcome().cause == Cause::stuck);
        CHECK(job.outcome().ended_text == "rank 2 ended without MPI_Finalize");
        CHECK(exit_code(job.outcome()) == kExitStuck);
        CHECK(job.outcome().also_failed == 2);
    }
    SECTION("by dtrun, which had been told of MPI_Abort: then that stays the cause") {
        job.rank_exited(h1, in_mpi(exited(2, 0, SIGTERM, SIGTERM), MpiUse::initialized));
        job.rank_exited(h1, in_mpi(exited(3, 14), MpiUse::aborted));
        CHECK(job.outcome().first->rank == Rank{0});
        CHECK(exit_code(job.outcome()) == 14);
    }
    CHECK_FALSE(job.take_stop().has_value());
}

TEST_CASE(
    "a rank that was killed or has crashed names the outcome, even if a peer that noticed is heard "
    "of before",
    "[job]") {
    Job job = running_job();
    SECTION("a crash") {
        job.rank_exited(h0, exited(0, 1));
        job.rank_exited(h1, exited(2, 0, SIGSEGV));
        CHECK(job.outcome().first->rank == Rank{2});
        CHECK(exit_code(job.outcome()) == 139);
        return;
    }
    SECTION("by nobody of dtrun") {
        job.rank_exited(h0, exited(0, 1));
        CHECK(job.take_stop().has_value());
        job.rank_exited(h1, exited(2, 0, SIGKILL));
        job.rank_exited(h1, exited(3, 0, SIGKILL));  // after it, as far as is known
        job.rank_exited(h0, exited(1, 0, SIGTERM, SIGTERM));
        CHECK(job.outcome().first->rank == Rank{2});
        CHECK(job.outcome().also_failed == 2);
        CHECK(job.outcome().victims == 1);
        CHECK(exit_code(job.outcome()) == 137);
        return;
    }
    SECTION("though the peer ends in MPI, and without MPI_Abort") {
        job.rank_exited(h0, in_mpi(exited(0, 1), MpiUse::initialized));
        job.rank_exited(h1, exited(2, 0, SIGKILL));
        CHECK(job.outcome().first->rank == Rank{2});
        return;
    }
    SECTION("but not by dtrun") {
        job.rank_exited(h0, exited(0, 1));
        job.rank_exited(h1, exited(2, 0, SIGKILL, SIGKILL));
    }
    SECTION("but not where the first could not even be started") {
        Exited not_started = exited(0, 1);
        not_started.pid = 0;
        job.rank_exited(h0, not_started);
        job.rank_exited(h1, exited(2, 0, SIGKILL));
    }
    SECTION("but other signals may be what a peer's end leads to") {
        job.rank_exited(h0, exited(0, 1));
        job.rank_exited(h1, exited(2, 0, SIGABRT));
    }
    CHECK(job.outcome().first->rank == Rank{0});
    CHECK(exit_code(job.outcome()) == 1);
}

TEST_CASE("a rank that a signal ended makes 128 plus its number", "[job]") {
    Job job = running_job();
    job.rank_exited(h0, exited(1, 0, SIGSEGV));
    CHECK(exit_code(job.outcome()) == 139);
}

TEST_CASE("with keep_going the others finish, and the first failure still counts", "[job]") {
    Job job = running_job({true, 5s});
    job.rank_exited(h0, exited(0, 4));
    CHECK_FALSE(job.take_stop().has_value());
    job.rank_exited(h0, exited(1, 5));
    job.rank_exited(h1, exited(2, 0));
    job.rank_exited(h1, exited(3, 0));
    CHECK(job.take_stop().has_value());
    CHECK(job.outcome().also_failed == 1);
    CHECK(exit_code(job.outcome()) == 4);
}

TEST_CASE(
    "a program that recovers by itself outlives ranks and hosts, and enough ranks are a success",
    "[job]") {
    JobOptions options;
    options.keep_going = options.outlives_hosts = true;
    options.ranks_to_end_well = 2;
    Job job = running_job(options);
    job.rank_exited(h0, exited(0, 4));
    SECTION("fewer than are needed") {
        job.host_lost(h1, "silent");
        CHECK_FALSE(job.take_stop().has_value());
        job.rank_exited(h0, exited(1, 0));
        CHECK(job.take_stop().has_value());
        CHECK(exit_code(job.outcome()) == 4);
    }
    SECTION("as many as are needed") {
        job.rank_exited(h1, exited(2, 0));
        job.rank_exited(h0, exited(1, 0));
        job.host_lost(h1, "silent");
        CHECK(job.take_stop().has_value());
        CHECK(exit_code(job.outcome()) == 0);
    }
}

TEST_CASE("hosts that fail are reported together once every host has answered", "[job]") {
    Job job({1, 1, 1}, {});
    job.host_failed({h0, StartFailure::unreachable, "refused"});
    CHECK_FALSE(job.take_stop().has_value());
    job.host_ready(h1);
    CHECK_FALSE(job.take_start());
    job.host_failed({h2, StartFailure::denied, "key"});
    CHECK_FALSE(job.take_start());
    CHECK(job.take_stop().has_value());
    CHECK(job.outcome().cause == Cause::cannot_start);
    CHECK(job.outcome().host_failures.size() == 2);
    CHECK(exit_code(job.outcome()) == kExitUnreachable);
    CHECK_FALSE(job.over());
    job.host_done(h1, 0);
    CHECK(job.over());
}

TEST_CASE("a lost host ends the job unless something failed before it", "[job]") {
    Job job = running_job();
    job.host_lost(h1, "silent");
    CHECK(job.take_stop().has_value());
    job.rank_exited(h1, exited(2, 1));  // late news from the lost host counts for nothing
    job.rank_exited(h0, exited(0, 0, SIGTERM, SIGTERM));
    job.host_done(h0, 0);
    CHECK(job.over());
    CHECK(job.outcome().cause == Cause::host_lost);
    CHECK(job.outcome().also_failed == 0);
    CHECK(exit_code(job.outcome()) == kExitLost);

    Job failed = running_job();
    failed.rank_exited(h0, exited(0, 3));
    failed.host_lost(h1, "silent");
    CHECK(exit_code(failed.outcome()) == 3);
}

TEST_CASE("Ctrl-C asks ranks to end, the second one kills them", "[job]") {
    Job job = running_job();
    job.interrupt(SIGINT);
    auto order = job.take_stop();
    CHECK(order->signal == SIGTERM);
    CHECK(order->grace == 5s);
    job.interrupt(SIGINT);
    order = job.take_stop();
    CHECK(order->signal == SIGKILL);
    CHECK(order->grace == 0ms);
    all_done(job);
    CHECK(exit_code(job.outcome()) == 130);
}

TEST_CASE("TERM, HUP and QUIT are passed on as they are", "[job]") {
    for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
        Job job = running_job();
        job.interrupt(signal);
        CHECK(job.take_stop()->signal == signal);
        CHECK(exit_code(job.outcome()) == 128 + signal);
    }
}

TEST_CASE("a scheduler that ends the job gives it its grace, however often it says so", "[job]") {
    Job job({1, 1}, {false, 3'000ms});
    job.host_ready(h0);
    job.host_ready(h1);
    REQUIRE(job.take_start());
    job.end(SIGTERM);
    const auto order = job.take_stop();
    REQUIRE(order.has_value());
    CHECK(order->signal == SIGTERM);
    CHECK(order->grace == 3'000ms);
    job.end(SIGTERM);
    CHECK_FALSE(job.take_stop().has_value());
    job.interrupt(SIGTERM);  // dtrun's own
    CHECK_FALSE(job.take_stop().has_value());
    job.interrupt(SIGTERM);  // somebody is impatient
    REQUIRE(job.take_stop().has_value());
    CHECK(exit_code(job.outcome()) == 128 + SIGTERM);
}

TEST_CASE("an interruption while hosts connect ends the job without waiting for them", "[job]") {
    Job job({1, 1}, {});
    job.interrupt(SIGINT);
    CHECK(job.take_stop().has_value());
    CHECK(job.over());
    job.host_ready(h0);  // too late: it is told to end, and waited for
    CHECK_FALSE(job.take_start());
    CHECK_FALSE(job.over());
}

TEST_CASE("a start timeout counts only before the start", "[job]") {
    Job job({1}, {});
    job.start_timed_out();
    CHECK(job.take_stop().has_value());
    CHECK(exit_code(job.outcome()) == kExitTimeout);
    Job started = running_job();
    started.start_timed_out();
    CHECK_FALSE(started.take_stop().has_value());
}

TEST_CASE("a job that takes too long is ended as by Ctrl-C, and its exit code is that of a timeout",
          "[job]") {
    Job job = running_job();
    job.end_because(JobOutcome::Cause::time_limit);
    const auto stop = job.take_stop();
    REQUIRE(stop.has_value());
    CHECK(stop->signal == SIGTERM);
    CHECK(job.outcome().cause == JobOutcome::Cause::time_limit);
    CHECK(exit_code(job.outcome()) == kExitTimeout);
    // What has failed before is the cause.
    Job interrupted = running_job();
    interrupted.interrupt(SIGINT);
    interrupted.end_because(JobOutcome::Cause::time_limit);
    CHECK(exit_code(interrupted.outcome()) == 130);
}

TEST_CASE("each way to fail before the start has its exit code", "[job]") {
    const std::vector<std::pair<StartFailure, int>> table{{StartFailure::unreachable, 201},
                                                          {StartFailure::timed_out, 201},
                                                          {StartFailure::denied, 202},
                                                          {StartFailure::agent, 203},
                                                          {StartFailure::program_missing, 127},
                                                          {StartFailure::not_executable, 126},
                                                          {StartFailure::directory_missing, 126},
                                                          {StartFailure::usage, 200}};
    for (const auto& [kind, code] : table) {
        JobOutcome outcome;
        outcome.cause = Cause::cannot_start;
        outcome.host_failures.push_back({h0, kind, ""});
        CHECK(exit_code(outcome) == code);
    }
}

TEST_CASE("docs/EVENTS.md has the name of each cause", "[job]") {
    std::ifstream file(DTRUN_EVENTS_MD);
    std::string text(std::istreambuf_iterator<char>(file), {});
    std::ranges::replace(text, '\n', ' ');
    std::string names;
#define DTRUN_CAUSE(name, code)                  \
    names += names.empty() ? #name : ", " #name; \
    CHECK(name_of(Cause::name) == #name);
#include "launcher/report/causes.def"
    CHECK_THAT(text, Catch::Contains("`cause` is one of " + names + "."));
}

TEST_CASE("whatever happens in whatever order, one cause stays and the job ends", "[job]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    for (int round = 0; round < 500; ++round) {
        const std::uint32_t hosts = 1 + random() % 5;
        Job job(PerHost<std::uint32_t>(hosts, 2), {random() % 2 == 0, 1s});
        auto cause = Cause::success;
        for (int event = 0; event < 60; ++event) {
            const auto number = static_cast<std::uint32_t>(random() % hosts);
            const HostId host{number};
            switch (random() % 6) {
                case 0:
                    job.host_ready(host);
                    break;
                case 1:
                    job.host_failed({host, StartFailure::denied, "x"});
                    break;
                case 2:
                    if (random() % 8 == 0) job.host_lost(host, "x");
                    break;
                case 3:
                    job.rank_exited(host, exited(number * 2, static_cast<int>(random() % 2)));
                    break;
                case 4:
                    if (random() % 16 == 0) job.interrupt(SIGINT);
                    break;
                case 5:
                    if (random() % 16 == 0) job.start_timed_out();
                    break;
            }
            if (cause != Cause::success) CHECK(job.outcome().cause == cause);
            cause = job.outcome().cause;
        }
        job.interrupt(SIGINT);
        job.interrupt(SIGINT);
        for (const HostId host : all_hosts(hosts)) job.host_done(host, 0);
        CHECK(job.over());
    }
}

}  // namespace dtrun
