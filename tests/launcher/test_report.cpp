#include "hostfiles/nodelist.h"
#include "launcher/plan/rank_set.h"
#include "launcher/report/report.h"
#include "launcher/report/report_json.h"
#include "launcher/report/torch_error.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <csignal>

namespace dtrun {

using namespace report;
using namespace plan;
namespace {

/// Four ranks on s1 and s2.
JobSpec sample_spec() {
    JobSpec spec;
    spec.options.program = {"python", "train.py"};
    for (const char* name : {"s1", "s2", "s3"}) {
        JobHost& host = spec.hosts.emplace_back();
        host.host.name = name;
    }
    for (int rank = 0; rank < 6; ++rank) spec.placement.ranks.push_back({rank, rank / 2, rank % 2});
    return spec;
}

std::vector<std::string> no_tail(SlotId) {
    return {};
}

std::string report_of(const JobOutcome& outcome, const TailOf& tail) {
    return failure_report(outcome, sample_spec(), RankNumbers(std::size_t{6}), tail);
}

JobOutcome rank_failed(std::uint32_t rank, int code, int signal) {
    JobOutcome outcome;
    outcome.cause = JobOutcome::Cause::rank_failed;
    outcome.first = Exited{};
    outcome.first->rank = Rank{rank};
    outcome.first->pid = 4'242;
    outcome.first->code = code;
    outcome.first->signal = signal;
    outcome.first->ran_ns = 1'250'000'000;
    return outcome;
}

}  // namespace

TEST_CASE("the report names rank, host, pid, code, time, last words and victims", "[report]") {
    JobOutcome outcome = rank_failed(3, 7, 0);
    outcome.victims = 4;
    outcome.killed = 1;
    outcome.also_failed = 1;
    outcome.orphans = 2;
    const auto tail = [](SlotId rank) {
        CHECK(rank == SlotId{3});
        return std::vector<std::string>{"Traceback", "ValueError: boom"};
    };
    CHECK(report_of(outcome, tail) ==
          "dtrun: rank 3 on s2 (pid 4242) exited with code 7 after 1.25 s\n"
          "  last 2 lines of its standard error:\n"
          "  | Traceback\n"
          "  | ValueError: boom\n"
          "  1 other rank failed after it, 4 other ranks ended by dtrun (1 had to be killed) and "
          "2 processes that ranks had left behind ended\n");
}

TEST_CASE("programs are told of each failure, with last lines and what helps", "[report]") {
    JobOutcome outcome = rank_failed(3, 7, 0);
    outcome.also_failed = 20;
    outcome.later.push_back(*outcome.first);
    outcome.later.back().rank = Rank{4};
    outcome.later.back().signal = SIGSEGV;
    outcome.ended_well.push_back({Rank{0}, 5});
    outcome.waiting = {"rank 5: a \x1b[31mkey"};
    const auto tail = [](SlotId rank) {
        return std::vector<std::string>{rank == SlotId{3}
                                            ? "ModuleNotFoundError: No module named 'nosuch'"
                                            : "\x1b[1mbold\x1b[0m\r"};
    };
    const auto json = outcome_json(outcome, sample_spec(), RankNumbers(std::size_t{6}), tail);
    const auto& first = json.at("failures").at(0).as_object();
    CHECK(first.at("rank") == 3);
    CHECK(first.at("host") == "s2");
    CHECK(first.at("code") == 7);
    CHECK(first.at("ran_s") == 1.25);
    CHECK(first.at("last_lines").at(0) == "ModuleNotFoundError: No module named 'nosuch'");
    CHECK(first.at("cure").at("name") == "module");
    CHECK(first.at("cure").at("sign") == first.at("last_lines").at(0));
    const auto& second = json.at("failures").at(1).as_object();
    CHECK(second.at("signal") == "SIGSEGV");
    CHECK_FALSE(second.contains("code"));
    CHECK(second.at("last_lines").at(0) == "bold?");
    CHECK(json.at("failures_more") == 19);
    CHECK(boost::json::serialize(json.at("ended_well_before")) == "[0]");
    CHECK(json.at("waiting").at(0) == "rank 5: a key");
}

TEST_CASE("programs are told of all hosts that have failed, with the class of the failure",
          "[report]") {
    JobOutcome outcome;
    outcome.cause = JobOutcome::Cause::cannot_start;
    outcome.host_failures = {{HostId{0}, StartFailure::denied, "no key"},
                             {HostId{2}, StartFailure::timed_out, "no answer"}};
    const RankNumbers numbers(std::size_t{6});
    CHECK(boost::json::serialize(
              outcome_json(outcome, sample_spec(), numbers, no_tail).at("failed_hosts")) ==
          R"([{"host":"s1","class":"denied","why":"no key"},)"
          R"({"host":"s3","class":"timed_out","why":"no answer"}])");
    outcome = {};
    outcome.cause = JobOutcome::Cause::host_lost;
    outcome.lost_host = HostId{1};
    outcome.lost_text = "no heartbeat";
    CHECK(boost::json::serialize(
              outcome_json(outcome, sample_spec(), numbers, no_tail).at("failed_hosts")) ==
          R"([{"host":"s2","class":"lost","why":"no heartbeat"}])");
}

TEST_CASE("the report shows what @record has left, and who waited", "[report]") {
    JobOutcome outcome = rank_failed(1, 1, 0);
    outcome.restarts = 2;
    outcome.waiting = {"ranks 0, 2-5: torch's store: key default_pg/0//cpu//0/1"};
    outcome.first->traceback =
        R"({"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack":)"
        R"("Traceback (most recent call last):\n  File \"t.py\"\nRuntimeError: bo\u001bom\n",)"
        R"("timestamp": "1700000000"}}})";
    CHECK(report_of(outcome, no_tail) ==
          "dtrun: rank 1 on s1 (pid 4242) exited with code 1 after 1.25 s and 2 restarts\n"
          "  its exception:\n"
          "  | Traceback (most recent call last):\n"
          "  |   File \"t.py\"\n"
          "  | RuntimeError: bo?om\n"
          "  it wrote nothing to standard error\n"
          "  who waited then, and for what:\n"
          "    ranks 0, 2-5: torch's store: key default_pg/0//cpu//0/1\n");

    outcome.first->traceback = R"({"message": "two\nlines"})";
    CHECK_THAT(report_of(outcome, no_tail),
               Catch::Contains("  its exception:\n  | two\n  | lines\n"));
    outcome.first->traceback = R"({"message": {"message": "cut of)";
    CHECK_THAT(report_of(outcome, no_tail),
               Catch::Contains("TORCHELASTIC_ERROR_FILE is too long, or is not of torch"));
}

TEST_CASE("ranks that have not found torch's store at an address of their own are told of --store",
          "[report]") {
    const auto tail = [](SlotId) {
        return std::vector<std::string>{
            "torch.distributed.DistNetworkError: The client socket has timed out after 20000ms "
            "while "
            "trying to connect to (127.0.0.1, 24001)."};
    };
    const JobOutcome outcome = rank_failed(1, 1, 0);
    CHECK_THAT(report_of(outcome, tail), Catch::Contains("use --store rank0"));
    JobSpec spec = sample_spec();
    spec.options.torch_store = TorchStore::rank0;
    CHECK_THAT(failure_report(outcome, spec, RankNumbers(std::size_t{6}), tail),
               !Catch::Contains("--store"));
    const auto other = [](SlotId) {
        return std::vector<std::string>{"ValueError: The client socket is trying to sleep"};
    };
    CHECK_THAT(report_of(outcome, other), !Catch::Contains("--store"));
}

TEST_CASE("an exception that standard error ends with is not shown twice", "[report]") {
    JobOutcome outcome = rank_failed(1, 1, 0);
    outcome.first->traceback = R"({"message": "ValueError: boom"})";
    const auto tail = [](SlotId) {
        return std::vector<std::string>{"Traceback", "ValueError: boom"};
    };
    CHECK_THAT(report_of(outcome, tail), !Catch::Contains("its exception"));
}

TEST_CASE("what @record has left goes on to the caller with the rank's exit code", "[report]") {
    Exited first;
    first.code = 3;
    first.traceback = R"({"message": {"message": "ValueError: boom", "errorCode": 0, )"
                      R"("extraInfo": {"timestamp": "1"}}})";
    CHECK(
        torch_error_for_caller(first) ==
        R"({"message":{"message":"ValueError: boom","errorCode":3,"extraInfo":{"timestamp":"1"}}})");
    first.signal = SIGTERM;
    CHECK_THAT(*torch_error_for_caller(first), Catch::Contains(R"("errorCode":-15)"));
    first.traceback = R"({"message": "boom"})";
    CHECK(torch_error_for_caller(first) == R"({"message":"boom"})");
    for (const char* text : {"", "[]", R"({"message": {"message)"}) {
        first.traceback = text;
        CHECK_FALSE(torch_error_for_caller(first).has_value());
    }
}

TEST_CASE("the report tells a signal by name, and memory when the kernel says so", "[report]") {
    JobOutcome outcome = rank_failed(0, 0, SIGKILL);
    outcome.first->out_of_memory = true;
    CHECK_THAT(
        report_of(outcome, no_tail),
        Catch::StartsWith(
            "dtrun: rank 0 on s1 (pid 4242) was ended by signal 9 (SIGKILL): out of memory, the "
            "kernel's OOM killer ended it after 1.25 s\n"
            "  it wrote nothing to standard error\n"
            "  hint: memory of s1 was short, "));
    outcome.first->out_of_memory = false;
    outcome.first->hung = true;
    CHECK_THAT(
        report_of(outcome, no_tail),
        Catch::StartsWith("dtrun: rank 0 on s1 (pid 4242) was ended by signal 9 (SIGKILL) "
                          "after 1.25 s: a section took longer than its limit (--on-hang kill)\n"));
}

TEST_CASE("the report tells of ranks that had ended well before another one failed", "[report]") {
    JobOutcome outcome = rank_failed(3, 1, 0);
    outcome.victims = 2;
    outcome.ended_well = {{Rank{2}, 950'000'000}};
    CHECK(report_of(outcome, no_tail) ==
          "dtrun: rank 3 on s2 (pid 4242) exited with code 1 after 1.25 s\n"
          "  it wrote nothing to standard error\n"
          "  rank 2 on s2 had ended with code 0, 0.30 s before\n"
          "  2 other ranks ended by dtrun\n");
    outcome.ended_well = {
        {Rank{5}, 1'000'000'000}, {Rank{0}, 500'000'000}, {Rank{1}, 1'260'000'000}};
    CHECK_THAT(report_of(outcome, no_tail),
               Catch::Contains("\n  ranks 0-1, 5 had ended with code 0, the last 0.00 s before\n"));
}

TEST_CASE("a member of a daemon's job tells of its ranks by the job's numbers", "[report]") {
    JobOutcome outcome = rank_failed(9, 1, 0);
    outcome.ended_well = {{Rank{8}, 950'000'000}};
    const auto tail = [](SlotId rank) {
        CHECK(rank == SlotId{3});
        return std::vector<std::string>{"boom"};
    };
    const plan::RankNumbers numbers({Rank{6}, Rank{7}, Rank{8}, Rank{9}});
    CHECK(failure_report(outcome, sample_spec(), numbers, tail) ==
          "dtrun: rank 9 on s2 (pid 4242) exited with code 1 after 1.25 s\n"
          "  last 1 line of its standard error:\n"
          "  | boom\n"
          "  rank 8 on s2 had ended with code 0, 0.30 s before\n");
}

TEST_CASE("a long list of ranks is cut", "[report]") {
    CHECK(rank_ranges({Rank{7}}) == "7");
    CHECK(rank_ranges({Rank{0}, Rank{1}, Rank{2}, Rank{5}, Rank{7}, Rank{8}}) == "0-2, 5, 7-8");
    std::vector<Rank> even;
    for (std::uint32_t rank = 0; rank < 1'000; rank += 2) even.push_back(Rank{rank});
    CHECK(rank_ranges(even) ==
          "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, … (500 ranks)");
}

TEST_CASE("ranks are others only where some are the cause", "[report]") {
    JobOutcome outcome;
    outcome.victims = 4;
    outcome.cause = JobOutcome::Cause::stuck;
    outcome.ended_text = "rank 1 waits";
    CHECK(report_of(outcome, no_tail) == "dtrun: rank 1 waits\n  4 ranks ended by dtrun\n");
    outcome.cause = JobOutcome::Cause::interrupted;
    outcome.signal = SIGTERM;
    outcome.victims = 1;
    CHECK(report_of(outcome, no_tail) ==
          "dtrun: ended by signal 15 (SIGTERM)\n  1 rank ended by dtrun\n");
}

TEST_CASE("hosts that failed alike share a line", "[report]") {
    JobOutcome outcome;
    outcome.cause = JobOutcome::Cause::cannot_start;
    outcome.host_failures = {{HostId{0}, StartFailure::denied, "no key"},
                             {HostId{1}, StartFailure::unreachable, "refused"},
                             {HostId{2}, StartFailure::denied, "no key"}};
    CHECK(report_of(outcome, no_tail) ==
          "dtrun: cannot start: 3 of 3 hosts failed\n"
          "  s1 and s3: no key\n"
          "  s2: refused\n");
    outcome.host_failures = {{HostId{1}, StartFailure::agent, "exit status 1: oh\nno"}};
    CHECK_THAT(report_of(outcome, no_tail), Catch::EndsWith("\n  s2: exit status 1: oh\n    no\n"));
}

TEST_CASE("every host that failed is named, many as a node list", "[report]") {
    JobSpec spec;
    JobOutcome outcome;
    outcome.cause = JobOutcome::Cause::cannot_start;
    const std::vector<std::string> names = expand_nodelist("n[01-20],m[1-3],login").value();
    for (const std::string& name : names) {
        const HostId host{static_cast<std::uint32_t>(spec.hosts.size())};
        spec.hosts.emplace_back().host.name = name;
        outcome.host_failures.push_back(
            {host, StartFailure::unreachable, name == "login" ? "no such name" : "refused"});
    }
    CHECK(failure_report(outcome, spec, RankNumbers(std::size_t{0}), no_tail) ==
          "dtrun: cannot start: 24 of 24 hosts failed\n"
          "  n[01-20],m[1-3] (23): refused\n"
          "  login: no such name\n");
}

TEST_CASE("a lost host, an interruption and success have their own words, or none", "[report]") {
    JobOutcome outcome;
    CHECK(report_of(outcome, no_tail).empty());
    outcome.cause = JobOutcome::Cause::host_lost;
    outcome.lost_host = HostId{1};
    outcome.lost_text = "connection closed";
    CHECK(report_of(outcome, no_tail) == "dtrun: host s2 lost: connection closed\n");
    outcome.cause = JobOutcome::Cause::interrupted;
    outcome.signal = SIGINT;
    CHECK(report_of(outcome, no_tail) == "dtrun: ended by signal 2 (SIGINT)\n");
}

TEST_CASE("no text of others orders a terminal about or begins a line of dtrun's", "[report]") {
    const std::string foreign =
        "\x1b[31mred\x1b[0m\x1b]0;title\x07\xc2\x9b"
        "2J\ndtrun: all is well, job complete";
    const std::string shown = "red?]0;title??2J\n    dtrun: all is well, job complete\n";
    JobOutcome outcome;
    outcome.ended_text = outcome.lost_text = foreign;
    outcome.lost_host = HostId{1};
    outcome.cause = JobOutcome::Cause::ended_elsewhere;
    CHECK(report_of(outcome, no_tail) == "dtrun: the job was ended: " + shown);
    outcome.cause = JobOutcome::Cause::host_lost;
    CHECK(report_of(outcome, no_tail) == "dtrun: host s2 lost: " + shown);
    outcome.cause = JobOutcome::Cause::stuck;
    CHECK(report_of(outcome, no_tail) == "dtrun: " + shown);
    outcome.cause = JobOutcome::Cause::cannot_start;
    outcome.host_failures = {{HostId{0}, {}, foreign}};
    CHECK_THAT(report_of(outcome, no_tail), Catch::EndsWith("  s1: " + shown));
    JobSpec alone;
    JobHost& here = alone.hosts.emplace_back();
    here.host.name = "s1";
    here.transport = Transport::local;
    CHECK(failure_report(outcome, alone, RankNumbers(std::size_t{6}), no_tail) ==
          "dtrun: red?]0;title??2J (on s1)\n    dtrun: all is well, job complete\n");
    JobOutcome failed = rank_failed(1, 1, 0);
    failed.waiting = {foreign};
    const std::string text =
        report_of(failed, [&](SlotId) { return std::vector<std::string>{foreign}; });
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("\ndtrun:") == std::string::npos);
}

}  // namespace dtrun
