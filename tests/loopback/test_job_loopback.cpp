// What a head and its agents decide together: each case in many orders of events.

#include "launcher/plan/exit_code.h"
#include "tests/loopback/many_orders.h"
#include "tests/support/catch.h"
#include "tests/support/messages_of.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <optional>

namespace dtrun::loopback {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;

TEST_CASE("a job whose ranks end well succeeds, and shows all that they have printed",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {3, 1, 2};
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.shown.empty());
        CHECK(ending.output >= 6 * 40);
    });
}

TEST_CASE("every message between a head and its agents has one receiver", "[loopback]") {
    const Ending ending = simulate(Script{}, test_seed());
    CHECK(ending.head_receives == messages_of("agent → head"));
    CHECK(ending.agent_receives == messages_of("head → agent"));
}

TEST_CASE("the same seed gives the same run to the microsecond", "[loopback]") {
    Script script;
    script.ranks_on_host = {2, 2, 2};
    script.ranks[3] = {.life = 30ms, .code = 4};
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    const Ending first = simulate(script, seed);
    const Ending again = simulate(script, seed);
    CHECK(first.log == again.log);
    CHECK(first.shown == again.shown);
}

TEST_CASE("the first rank that fails gives the exit code, whichever host tells first",
          "[loopback]") {
    Script script = living_ranks({2, 2, 2});
    script.ranks[4] = {.life = 40ms, .code = 7};
    in_many_orders(50, script, [](const Ending& ending) {
        CHECK(ending.code == 7);
        CHECK_THAT(ending.shown, Contains("rank 4 on h2") && Contains("exited with code 7") &&
                                     Contains("5 other ranks ended by dtrun"));
        CHECK(ending.took < 1s);
    });
}

TEST_CASE("a rank that dies of a signal gives 128 + n", "[loopback]") {
    Script script;
    script.ranks[1] = {.life = 20ms, .signal = SIGSEGV};
    script.ranks[2].life = 1h;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 128 + SIGSEGV);
        CHECK_THAT(ending.shown, Contains("SIGSEGV"));
    });
}

TEST_CASE(
    "a rank that is killed on a slow host gives the code, not a peer that fails because of it",
    "[loopback]") {
    Script script = living_ranks({2, 2});
    script.hosts[HostId{1}].slow = 40ms;
    script.ranks[3] = {.life = 40ms, .signal = SIGKILL};
    script.ranks[0] = {.life = 85ms, .code = 1};  // which is told before
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 128 + SIGKILL);
        CHECK_THAT(ending.shown,
                   Contains("rank 3 on h1") && Contains("1 other rank failed after it"));
    });
}

TEST_CASE("ranks that do not heed SIGTERM are killed after --grace", "[loopback]") {
    Script script;
    script.ranks[0] = {.life = 20ms, .code = 3};
    script.ranks[3] = {.life = 1h, .ignores_signals = true};
    script.options = [](plan::Options& options) { options.grace = 700ms; };
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 3);
        CHECK(ending.took >= 700ms);
        CHECK(ending.took < 2s);
        CHECK_THAT(ending.shown, Contains("killed"));
    });
}

/// Ranks of the newest generation that had been started when who waits for the start was told of it; nothing: that was
/// not told.
std::optional<std::size_t> ranks_at_start(const Ending& ending) {
    if (!ending.events_before_start) return std::nullopt;
    std::map<std::uint64_t, std::size_t> ranks;
    for (std::size_t i = 0; i < *ending.events_before_start; ++i)
        if (ending.events[i].kind == watch::EventKind::rank_started)
            ++ranks[ending.events[i].fields.at("generation").to_number<std::uint64_t>()];
    return ranks.empty() ? 0 : ranks.rbegin()->second;
}

TEST_CASE("a job has started when the ranks of all of its hosts have, however short they live",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {2, 1, 3};
    for (const std::uint32_t rank : {0, 1, 2, 3, 4, 5}) script.ranks[rank].life = 1ms;
    script.ranks[5].life = 300ms;
    script.hosts[HostId{1}].slow = 40ms;
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ranks_at_start(ending) == 6);
    });
}

TEST_CASE("a job of which one rank cannot start has not started, unless the others go on",
          "[loopback]") {
    Script script;
    script.ranks[3].not_executable = true;
    for (const std::uint32_t rank : {0, 1, 2}) script.ranks[rank].life = 1s;
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 126);
        CHECK_FALSE(ranks_at_start(ending).has_value());
    });
    script.options = [](plan::Options& options) { options.keep_going = true; };
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 126);
        CHECK(ranks_at_start(ending) == 3);
    });
    script.options = [](plan::Options& options) { options.max_restarts = 1; };
    script.attempts[{2, 3}] = {.life = 1s};
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        REQUIRE(ending.started.size() == 2);
        CHECK(ranks_at_start(ending) == 4);
    });
}

TEST_CASE("--keep-going lets the others finish and still tells the first failure", "[loopback]") {
    Script script;
    script.ranks[1] = {.life = 20ms, .code = 9};
    script.ranks[3] = {.life = 200ms, .code = 7};
    script.ranks[2] = {.life = 3s};
    script.options = [](plan::Options& options) { options.keep_going = true; };
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 9);
        CHECK(ending.took >= 3s);
        CHECK_THAT(ending.shown,
                   Contains("1 other rank failed after it") && !Contains("ended by dtrun"));
    });
}

TEST_CASE("what ranks leave behind is counted in the report", "[loopback]") {
    Script script;
    script.ranks[0].orphans = 2;
    script.ranks[2] = {.life = 60ms, .code = 1, .orphans = 1};
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 1);
        CHECK_THAT(ending.shown, Contains("3 processes"));
    });
}

TEST_CASE("a rank whose program cannot be executed fails the job with 126", "[loopback]") {
    Script script;
    script.ranks[2].not_executable = true;
    script.ranks[0].life = 1h;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 126);
        CHECK_THAT(ending.shown, Contains("cannot execute it"));
    });
}

TEST_CASE("a program that no host has starts no rank, and is told of all hosts at once",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {1, 1, 1, 1};
    script.program = "/nowhere/at-all";
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitProgramMissing);
        CHECK_THAT(ending.shown, Contains("4 of 4 hosts failed") &&
                                     Contains("h0, h1, h2 and h3: /nowhere/at-all"));
        CHECK(ending.output == 0);
    });
}

TEST_CASE("Ctrl-C at any moment ends the job with 130", "[loopback]") {
    Script script = living_ranks();
    const std::uint32_t seed = test_seed();
    for (std::uint32_t i = 0; i < 120; ++i) {
        INFO("DTRUN_SEED=" << seed);
        script.signals = {{milliseconds(i / 4), SIGINT}};
        const Ending ending = simulate(script, seed + i);
        INFO("at " << i / 4 << " ms: " << ending.shown);
        CHECK(ending.code == 130);
        CHECK(ending.left == 0);
        CHECK(ending.took < 6s);
    }
}

TEST_CASE("Ctrl-C twice kills ranks that do not heed the first, long before the grace is over",
          "[loopback]") {
    Script script = living_ranks({2, 2}, {.life = 1h, .ignores_signals = true});
    script.options = [](plan::Options& options) { options.grace = 10min; };
    script.signals = {{100ms, SIGINT}, {900ms, SIGINT}};
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 130);
        CHECK(ending.took < 3s);
    });
}

TEST_CASE("Ctrl-C on a job that has printed nothing for 30 s says where its ranks are",
          "[loopback]") {
    Script script = living_ranks();
    script.look_takes = 200ms;
    script.signals = {{45s, SIGINT}};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 130);
        CHECK_THAT(ending.shown,
                   Contains("Ctrl-C again kills them at once\n"
                            "  ranks 0, 2-3 are in all_reduce: <module> (train.py:9)\n"
                            "  rank 1 is not: load_batch (train.py:5)\n") &&
                       Contains("  ranks 0, 2-3 (3): python3, by faulthandler\n"
                                "    all_reduce (torch/distributed/d.py:2)\n"));
        CHECK(ending.took < 46s);
    });
    script.signals = {{25s, SIGINT}};  // it has printed something at its begin
    in_many_orders(5, script, [](const Ending& ending) {
        CHECK(ending.code == 130);
        CHECK_THAT(ending.shown, !Contains("nothing was printed"));
    });
    script.signals = {{45s, SIGTERM}};  // a scheduler's
    in_many_orders(5, script, [](const Ending& ending) {
        CHECK(ending.code == 143);
        CHECK_THAT(ending.shown, !Contains("nothing was printed"));
    });
}

TEST_CASE(
    "a job that --timeout ends is told with where its ranks are, if it has long printed nothing",
    "[loopback]") {
    Script script = living_ranks();
    script.look_takes = 200ms;
    for (const auto limit : {40s, 20s}) {
        script.options = [limit](plan::Options& options) { options.time_limit = limit; };
        in_many_orders(5, script, [limit](const Ending& ending) {
            CHECK(ending.code == plan::kExitTimeout);
            const bool is_told =
                ending.shown.find("where the ranks were then:\n    ranks 0, 2-3 are in") !=
                std::string::npos;
            CHECK(is_told == (limit > 30s));
        });
    }
}

TEST_CASE(
    "hosts that do not say where their ranks are keep Ctrl-C for two seconds, and a second one not "
    "at all",
    "[loopback]") {
    Script script = living_ranks();
    script.look_takes = 1h;
    script.signals = {{45s, SIGINT}};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 130);
        CHECK_THAT(ending.shown, Contains("nothing was printed for 45 s") && !Contains("said"));
        CHECK(ending.took > 46900ms);
        CHECK(ending.took < 48s);
    });
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].ignores_signals = true;
    script.options = [](plan::Options& options) { options.grace = 10min; };
    script.signals = {{45s, SIGINT}, {45300ms, SIGINT}};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 130);
        CHECK(ending.left == 0);
        CHECK(ending.took < 47s);
    });
    script.signals = {{45s, SIGINT}, {45300ms, SIGTERM}};
    script.options = [](plan::Options& options) { options.grace = 1s; };
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 143);
        CHECK(ending.took < 48s);
    });
}

TEST_CASE("TERM, HUP and QUIT end the job with 128 + n; USR1 ends nothing", "[loopback]") {
    Script script;
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].life = 400ms;
    for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
        script.signals = {{100ms, SIGUSR1}, {200ms, signal}};
        in_many_orders(5, script,
                       [signal](const Ending& ending) { CHECK(ending.code == 128 + signal); });
    }
    script.signals = {{100ms, SIGUSR1}, {200ms, SIGUSR2}};
    in_many_orders(5, script, [](const Ending& ending) { CHECK(ending.code == 0); });
}

TEST_CASE("USR1 that comes before all ranks run is told", "[loopback]") {
    Script script;
    script.hosts[HostId{1}].login_takes = 2s;
    script.signals = {{1s, SIGUSR1}};
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].life = 2s;
    constexpr const char* kTold = "SIGUSR1 has come before all ranks run";
    in_many_orders(3, script, [kTold](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK_THAT(ending.shown, Contains(kTold));
    });
    script.signals = {{3s, SIGUSR1}};
    in_many_orders(3, script, [kTold](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK_THAT(ending.shown, !Contains(kTold));
    });
}

TEST_CASE("a head that Ctrl-Z has stopped is not given up, however long it takes", "[loopback]") {
    Script script;
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].life = 500s;
    script.signals = {{1s, SIGTSTP}, {300s, SIGCONT}};
    in_many_orders(3, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(std::ranges::any_of(ending.log, [](const std::string& line) {
            return line.find("dtrun stops itself") != std::string::npos;
        }));
    });
}

TEST_CASE("every kind of host that cannot be started is told with its name, and no rank starts",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {1, 1, 1, 1, 1, 1};
    script.hosts[HostId{1}].login = Login::refused;
    script.hosts[HostId{2}].login = Login::hangs;
    script.hosts[HostId{3}].login = Login::says_nothing;
    script.hosts[HostId{4}].login = Login::cannot_connect;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code >= 200);
        CHECK_THAT(ending.shown, Contains("4 of 6 hosts failed"));
        CHECK_THAT(ending.shown, Contains("h1: ssh: it does not know this key"));
        CHECK_THAT(ending.shown, Contains("h2: ssh: no answer within 10 s (--connect-timeout)"));
        CHECK_THAT(ending.shown, Contains("h3: starting the agent (not a word of its login shell"));
        CHECK_THAT(ending.shown, Contains("h4: the agent cannot reach this machine: 192.0.2.1"));
        CHECK(ending.output == 0);
        CHECK(ending.took < 13s);
    });
}

TEST_CASE("hosts that swallow packets keep no others waiting for their log-in", "[loopback]") {
    Script script;
    script.ranks_on_host.assign(12, 1);
    script.options = [](plan::Options& options) { options.fanout = 2; };
    for (std::uint32_t host = 0; host < 8; ++host) script.hosts[HostId{host}].login = Login::hangs;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK_THAT(ending.shown, Contains("8 of 12 hosts failed"));
        CHECK(ending.logins_max > 2);
        CHECK(ending.took < 15s);  // two at a time, each for 10 s, would be 40 s
    });
    for (auto& [host, does] : script.hosts) does = {.login_takes = 300ms};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.logins_max == 2);
    });
}

TEST_CASE("what a host says before it has joined is shown when it has, and ends nothing",
          "[loopback]") {
    Script script;
    script.hosts[HostId{1}].warns = "h1: not bound: 4 ranks have 2 cores";
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK_THAT(ending.shown, Contains(": h1: not bound: 4 ranks have 2 cores\n"));
    });
}

TEST_CASE("what many hosts say alike is shown as one line, soon, and before the report",
          "[loopback]") {
    Script script;
    script.ranks_on_host.assign(40, 1);
    for (std::uint32_t host = 0; host < 40; ++host)
        script.hosts[HostId{host}].warns = fmt::format("h{}: not bound", host);
    script.hosts[HostId{7}].warns = "h7: has no package";
    for (const bool is_short : {true, false}) {
        script.ranks[0] = {.life = is_short ? 30ms : 5s};
        in_many_orders(10, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK_THAT(ending.shown, Contains(": h[0-6,8-39] (39): not bound\n") &&
                                         Contains(": h7: has no package\n"));
        });
    }
}

TEST_CASE("a machine that joins by two names starts no rank, unless they are to share it",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {1, 2, 2};
    for (const HostId host : {HostId{0}, HostId{2}}) script.hosts[host].machine = "the same";
    script.hosts[HostId{1}].machine = "another";
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitUsage);
        CHECK(ending.started.empty());
        CHECK_THAT(ending.shown, Contains("  h2: one machine with h0: give it one name") ||
                                     Contains("  h0: one machine with h2: give it one name"));
        CHECK_THAT(ending.shown, !Contains("lost"));
        CHECK(ending.sweeps == 0);  // no rank has been there
    });
    script.options = [](plan::Options& options) { options.oversubscribe = true; };
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK_THAT(ending.shown,
                   Contains("h0 and h2 are one machine: their ranks share its devices"));
    });
}

TEST_CASE("why dtrun refuses an agent is told with its host", "[loopback]") {
    Script script;
    script.hosts[HostId{1}].login = Login::speaks_before_join;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitAgent);
        CHECK_THAT(ending.shown,
                   Contains("h1: dtrun refuses this host: frame of type 25 before join"));
    });
}

TEST_CASE("an agent that ends before it has joined is told with how it ended", "[loopback]") {
    Script script;
    script.hosts[HostId{1}].login = Login::dies_with_config;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code >= 200);
        CHECK_THAT(ending.shown, Contains("h1: the agent"));
    });
}

TEST_CASE("--start-timeout ends a start that takes too long, and names who is not ready",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {1, 1, 1};
    script.hosts[HostId{1}].login_takes = 5s;
    script.hosts[HostId{2}].login = Login::says_nothing;
    script.options = [](plan::Options& options) { options.start_timeout = 2s; };
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code >= 200);
        CHECK_THAT(ending.shown, Contains("after 2 s (--start-timeout)") && Contains("h1") &&
                                     Contains("h2") && !Contains("h0"));
        CHECK(ending.took < 4s);
    });
}

TEST_CASE("never more than 128 log-ins go on at once, and all hosts have their turn",
          "[loopback]") {
    Script script;
    script.ranks_on_host.assign(300, 1);
    for (const HostId host : all_hosts(300)) script.hosts[host].login_takes = 200ms;
    in_many_orders(1, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.logins_max == 128);
    });
}

TEST_CASE("no more than eight log-ins go through one jump host at once", "[loopback]") {
    Script script;
    script.ranks_on_host.assign(40, 1);
    for (const HostId host : all_hosts(40))
        script.hosts[host] = {.login_takes = 200ms, .behind = "gate"};
    in_many_orders(1, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.logins_max == 8);
    });
    // Those of another one, and those that nobody leads to, have turns of their own.
    for (const HostId host : all_hosts(20)) script.hosts[host].behind = "other";
    script.hosts[HostId{39}].behind = "";
    in_many_orders(1, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.logins_max == 17);
    });
}

TEST_CASE("a host that hangs up before the key exchange is tried again until --connect-timeout",
          "[loopback]") {
    Script script;
    script.hosts[HostId{1}].not_ready = {6s, Errc::closed};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.logins > 4);
        CHECK(ending.logins < 15);
    });
    script.hosts[HostId{1}].not_ready = {1h, Errc::closed};
    in_many_orders(3, script, [](const Ending& ending) {
        CHECK(ending.code == 201);
        CHECK_THAT(ending.shown,
                   Contains("h1: ssh: not ready; tried for 10 s (--connect-timeout)"));
        CHECK(ending.took < 11s);
    });
}

TEST_CASE("a host that is not there yet is waited for with --wait-for-hosts", "[loopback]") {
    Script script;
    HostScript& late = script.hosts[HostId{1}];
    for (const Errc how : {Errc::not_found, Errc::unreachable, Errc::closed}) {
        late.not_ready = {25s, how};
        script.options = [](plan::Options&) {};
        in_many_orders(3, script, [how](const Ending& ending) {
            CHECK(ending.code == 201);
            CHECK(ending.took < (how == Errc::closed ? 11s : 1s));
        });
        script.options = [](plan::Options& options) { options.wait_for_hosts = 30s; };
        in_many_orders(3, script, [](const Ending& ending) {
            CHECK(ending.code == 0);
            CHECK(ending.took < 31s);
            CHECK(ending.logins < 20);
            CHECK_THAT(ending.shown, Contains("1/2 hosts ready after 2.0 s; waiting for ") &&
                                         Contains(", --wait-for-hosts)"));
        });
    }
    late.not_ready = {29'900ms, Errc::unreachable};
    in_many_orders(3, script, [](const Ending& ending) { CHECK(ending.code == 0); });
    // Packets to a machine that boots are lost, and each attempt has the whole --connect-timeout.
    late.not_ready = {25s, Errc::timed_out};
    late.login_takes = 9s;
    in_many_orders(3, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.took < 46s);
    });
    late.login_takes = 3ms;
    late.not_ready.reset();
    late.login = Login::refused;  // which no waiting changes
    in_many_orders(3, script, [](const Ending& ending) {
        CHECK(ending.code == 202);
        CHECK(ending.took < 1s);
    });
}

TEST_CASE("hosts that do not come within --wait-for-hosts are told together", "[loopback]") {
    Script script;
    script.ranks_on_host = std::vector<int>(6, 1);
    for (const std::uint32_t host : {1, 2, 3, 4, 5})
        script.hosts[HostId{host}].not_ready = {1h, Errc::not_found};
    script.options = [](plan::Options& options) { options.wait_for_hosts = 20s; };
    in_many_orders(3, script, [](const Ending& ending) {
        CHECK(ending.code == 201);
        CHECK_THAT(ending.shown, Contains("5 of 6 hosts failed\n  h[1-5] (5): ssh: not ready; "
                                          "tried for 20 s (--wait-for-hosts)"));
        CHECK(ending.took > 20s);
        CHECK(ending.took < 21s);
    });
    script.hosts[HostId{1}].not_ready = {1h, Errc::timed_out};
    script.signals = {{4s, SIGINT}};
    in_many_orders(3, script, [](const Ending& ending) {
        CHECK(ending.code == 130);
        CHECK(ending.took < 5s);
    });
}

TEST_CASE("a thousand hosts that boot are not asked all at once", "[loopback]") {
    Script script;
    script.ranks_on_host = std::vector<int>(1'000, 1);
    for (std::uint32_t host = 0; host < 1'000; ++host)
        script.hosts[HostId{host}].not_ready = {40s, Errc::unreachable};
    script.options = [](plan::Options& options) { options.wait_for_hosts = 60s; };
    in_many_orders(1, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.took < 50s);
        CHECK(ending.logins < 20'000);
        CHECK(ending.logins_max <= 128);
    });
}

TEST_CASE("a start that Ctrl-Z has stopped for longer than --connect-timeout goes on at fg",
          "[loopback]") {
    Script script;
    for (const std::uint32_t host : {0, 1}) script.hosts[HostId{host}].login_takes = 300ms;
    for (const milliseconds when : {1ms, 100ms, 290ms, 302ms, 304ms}) {
        INFO(when.count());
        script.stopped = {when, 25s};
        in_many_orders(5, script, [](const Ending& ending) { CHECK(ending.code == 0); });
    }
}

TEST_CASE("a host that loses its power is lost after the heartbeat timeout, and swept",
          "[loopback]") {
    Script script = living_ranks({2, 2, 2});
    script.hosts[HostId{1}].loses_power = 500ms;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitLost);
        CHECK_THAT(ending.shown, Contains("h1") && Contains("last heard 3"));
        CHECK(ending.sweeps == 1);
        CHECK(ending.took < 13s);
    });
}

TEST_CASE("the loss of hundreds of hosts does not keep the user for more than half a minute",
          "[loopback]") {
    Script script = living_ranks(std::vector<int>(400, 1));
    for (std::uint32_t host = 1; host < 400; ++host) script.hosts[HostId{host}].loses_power = 1s;
    in_many_orders(1, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitLost);
        CHECK(ending.logins_max <= 128);
        CHECK(ending.took < 30s);
    });
}

TEST_CASE("an agent that is killed, or cut off, ends the job at once and leaves no rank",
          "[loopback]") {
    Script script = living_ranks();
    script.hosts[HostId{0}].agent_killed = 200ms;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitLost);
        CHECK(ending.took < 2s);
    });
    script.hosts.clear();
    script.hosts[HostId{1}].cut_off = 200ms;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitLost);
        CHECK(ending.took < 5s);
    });
}

TEST_CASE("a network that delivers nothing for two seconds is no lost host, for four it is",
          "[loopback]") {
    Script script;
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].life = 8s;
    script.hosts[HostId{1}].stalled = {1s, 3s};
    in_many_orders(20, script, [](const Ending& ending) { CHECK(ending.code == 0); });
    script.hosts[HostId{1}].stalled = {1s, 5s};
    in_many_orders(20, script, [](const Ending& ending) { CHECK(ending.code == plan::kExitLost); });
}

TEST_CASE("neither an agent on dtrun's own machine nor its head is lost for being silent",
          "[loopback]") {
    Script script;
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].life = 60s;
    script.hosts[HostId{1}].is_here = true;
    script.hosts[HostId{1}].stalled = {1s, 31s};
    for (const Way way : {Way::from_host, Way::to_host, Way::both}) {
        script.hosts[HostId{1}].stalled_way = way;
        in_many_orders(20, script, [](const Ending& ending) { CHECK(ending.code == 0); });
    }
    script.hosts[HostId{1}].stalled.reset();
    script.hosts[HostId{1}].agent_killed = 2s;
    in_many_orders(20, script, [](const Ending& ending) { CHECK(ending.code == plan::kExitLost); });
}

TEST_CASE("--max-restarts starts all ranks again, and the last failure ends the job",
          "[loopback]") {
    Script script;
    script.ranks_on_host = {2, 2};
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].life = 300ms;
    script.attempts[{1, 3}] = {.life = 100ms, .code = 5};
    script.options = [](plan::Options& options) { options.max_restarts = 2; };
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK_THAT(ending.shown, Contains("rank 3 on h1 failed: ending all ranks, to start them "
                                          "again (1 of 2)"));
    });
    script.attempts[{2, 0}] = {.life = 20ms, .code = 6};
    script.attempts[{3, 1}] = {.life = 20ms, .code = 8};
    in_many_orders(30, script, [](const Ending& ending) {
        CHECK(ending.code == 8);
        CHECK_THAT(ending.shown, Contains("and 2 restarts"));
    });
}

TEST_CASE("what a start has needed is given back once all ranks run, after each start",
          "[loopback]") {
    Script script = living_ranks({2, 2}, {.life = 20s});
    script.attempts[{1, 3}] = {.life = 10s, .code = 5};
    script.options = [](plan::Options& options) { options.max_restarts = 1; };
    constexpr int kStarts = 2, kProcesses = 3;  // the head and its agents
    in_many_orders(10, script,
                   [](const Ending& ending) { CHECK(ending.given_back == kStarts * kProcesses); });
}

TEST_CASE("ranks that fail at once again and again start with growing pauses", "[loopback]") {
    Script script;
    script.ranks[0] = {.life = 10ms, .code = 1};
    script.options = [](plan::Options& options) { options.max_restarts = 8; };
    in_many_orders(5, script, [](const Ending& ending) {
        CHECK(ending.code == 1);
        CHECK(ending.took > 10s);  // 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 5 s
        CHECK(ending.took < 14s);
    });
}

TEST_CASE("Ctrl-C while ranks start again ends the job, whenever it comes", "[loopback]") {
    Script script = living_ranks({2, 2}, {.life = 1h, .reaction = 40ms});
    script.attempts[{1, 0}] = {.life = 100ms, .code = 5};
    script.options = [](plan::Options& options) { options.max_restarts = 3; };
    const std::uint32_t seed = test_seed();
    for (std::uint32_t i = 0; i < 100; ++i) {
        INFO("DTRUN_SEED=" << seed);
        script.signals = {{milliseconds(90 + i), SIGINT}};
        const Ending ending = simulate(script, seed + i);
        INFO("at " << 90 + i << " ms: " << ending.shown);
        CHECK((ending.code == 130 || ending.code == 5));
        CHECK(ending.left == 0);
    }
}

TEST_CASE("a host that does not end its ranks is given up after the grace", "[loopback]") {
    Script script = living_ranks();
    script.ranks[0] = {.life = 50ms, .code = 2};
    // Stalls that are too short to be silence keep the answer away again and again.
    script.hosts[HostId{1}].stalled = {60ms, 2'500ms};
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 2);
        CHECK(ending.took < 20s);
    });
}

TEST_CASE("output that nobody reads is kept back at the ranks, and all of it is shown later",
          "[loopback]") {
    Script script;
    for (const std::uint32_t rank : {0, 1, 2, 3}) script.ranks[rank].output_bytes = 60'000;
    script.reader_pauses = {0s, 60s};
    in_many_orders(5, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.took >= 60s);
        CHECK(ending.output >= 4 * 60'000);
    });
}

/// Anything may happen to a job, at any moment.
Script any_script(std::mt19937& random) {
    const auto any = [&random](int n) {
        return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    Script script;
    script.ranks_on_host.clear();
    std::uint32_t ranks = 0;
    for (int host = 1 + any(4); host > 0; --host) {
        script.ranks_on_host.push_back(1 + any(3));
        ranks += static_cast<std::uint32_t>(script.ranks_on_host.back());
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        RankScript& does = script.ranks[rank];
        does.life = milliseconds(any(400));
        if (any(6) == 0) does.code = 1 + any(100);
        if (any(12) == 0) does.signal = SIGSEGV;
        does.ignores_signals = any(5) == 0;
        does.reaction = milliseconds(any(50));
        does.output_bytes = static_cast<std::size_t>(any(3'000));
        does.not_executable = any(30) == 0;
    }
    const auto hosts = static_cast<std::uint32_t>(script.ranks_on_host.size());
    for (const HostId host : all_hosts(hosts)) {
        HostScript& does = script.hosts[host];
        does.login_takes = milliseconds(any(100));
        if (any(15) == 0) does.login = static_cast<Login>(any(6));
        if (any(10) == 0) does.loses_power = milliseconds(any(400));
        if (any(10) == 0) does.agent_killed = milliseconds(any(400));
        if (any(10) == 0) does.cut_off = milliseconds(any(400));
        if (any(10) == 0) does.stalled = {milliseconds(any(400)), milliseconds(400 + any(6'000))};
    }
    for (int n = any(3); n > 0; --n) {
        constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
        script.signals.emplace_back(milliseconds(any(500)), kSignals[any(4)]);
    }
    if (any(5) == 0)
        script.reader_pauses = {milliseconds(any(300)), milliseconds(300 + any(3'000))};
    const int restarts = any(3);
    const bool keep_going = any(5) == 0;
    const milliseconds grace(any(1'000));
    script.options = [=](plan::Options& options) {
        options.max_restarts = restarts;
        options.keep_going = keep_going;
        options.grace = grace;
    };
    return script;
}

/// Nothing in the script is a reason to fail.
bool is_harmless(const Script& script) {
    return script.signals.empty() &&
           std::ranges::all_of(script.ranks,
                               [](const auto& rank) {
                                   const RankScript& does = rank.second;
                                   return does.code == 0 && does.signal == 0 &&
                                          !does.not_executable;
                               }) &&
           std::ranges::all_of(script.hosts, [](const auto& host) {
               const HostScript& does = host.second;
               return does.login == Login::works && !does.loses_power && !does.agent_killed &&
                      !does.cut_off && !does.stalled;
           });
}

TEST_CASE("whatever happens to a job, it ends in time, says why, and leaves no rank",
          "[loopback]") {
    const std::uint32_t seed = test_seed();
    for (std::uint32_t i = 0; i < 1'500; ++i) {
        INFO("DTRUN_SEED=" << seed << ", job " << i);
        std::mt19937 random(seed + i);
        const Script script = any_script(random);
        const Ending ending = simulate(script, seed + i);
        INFO(ending.shown);
        REQUIRE(ending.left == 0);
        REQUIRE(ending.took < 60s);
        REQUIRE(ending.code >= 0);
        if (is_harmless(script)) REQUIRE(ending.code == 0);
        if (ending.code != 0) REQUIRE(!ending.shown.empty());
    }
}

TEST_CASE("--restart-delay keeps ranks from starting again at once", "[loopback]") {
    Script script;
    script.ranks[1] = {.life = 20ms, .code = 4};
    script.options = [](plan::Options& options) {
        options.max_restarts = 2;
        options.restart_delay = 7s;
    };
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 4);
        CHECK(ending.started.size() == 3);
        CHECK(ending.took >= 14s);
        CHECK(ending.took < 17s);
    });
}

TEST_CASE("a rank that fails before --min-uptime ends the job, and one that fails later does not",
          "[loopback]") {
    Script script;
    script.options = [](plan::Options& options) {
        options.max_restarts = 5;
        options.min_uptime = 10s;
    };
    script.attempts[{1, 1}] = {.life = 20s, .code = 4};
    script.attempts[{2, 0}] = {.life = 1s, .code = 5};
    script.attempts[{2, 1}].life = 1h;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 5);
        CHECK(ending.started.size() == 2);
        CHECK_THAT(ending.shown, Contains("not started again: it has run for less than 10 s "
                                          "(--min-uptime)"));
    });
}

/// The kinds of all events but those of single ranks, each with its host and code.
std::string story_of(const Ending& ending) {
    std::string text;
    for (const watch::Event& event : ending.events) {
        if (event.kind == watch::EventKind::rank_started) continue;
        text += watch::name_of(event.kind);
        for (const char* const field : {"host", "rank", "code", "exit_code", "cause"})
            if (const auto* const value = event.fields.if_contains(field))
                text += fmt::format(" {}", value->is_string()
                                               ? std::string(value->as_string())
                                               : std::to_string(value->to_number<int>()));
        text += "\n";
    }
    return text;
}

TEST_CASE("the events of a job that succeeds, fails, restarts and loses a host", "[loopback]") {
    Script script;
    script.ranks_on_host = {1};
    SECTION("success") {
        in_many_orders(5, script, [](const Ending& ending) {
            CHECK(story_of(ending) ==
                  "job_started\nhost_joined h0\nworld_started\nrank_exited h0 0 0\n"
                  "job_ending success\njob_ended 0 success\n");
        });
    }
    SECTION("a rank that fails, once more after a restart") {
        script.ranks[0] = {.life = 20ms, .code = 4};
        script.options = [](plan::Options& options) { options.max_restarts = 1; };
        in_many_orders(5, script, [](const Ending& ending) {
            CHECK(story_of(ending) ==
                  "job_started\nhost_joined h0\nworld_started\nrank_exited h0 0 4\n"
                  "restart h0 0 4\nworld_started\nrank_exited h0 0 4\njob_ending rank_failed\n"
                  "job_ended 4 rank_failed\n");
        });
    }
    SECTION("a lost host") {
        script.ranks[0].life = 1h;
        script.hosts[HostId{0}].loses_power = 500ms;
        in_many_orders(5, script, [](const Ending& ending) {
            CHECK(story_of(ending) ==
                  "job_started\nhost_joined h0\nworld_started\nhost_lost h0\n"
                  "job_ending host_lost\njob_ended 204 host_lost\n");
        });
    }
    SECTION("a host that cannot be used") {
        script.hosts[HostId{0}].login = Login::refused;
        in_many_orders(5, script, [](const Ending& ending) {
            CHECK_THAT(story_of(ending), Contains("job_started\nhost_failed h0\njob_ending "
                                                  "cannot_start\njob_ended "));
        });
    }
}

}  // namespace
}  // namespace dtrun::loopback
