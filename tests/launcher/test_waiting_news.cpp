// What is told of what is waited for, and when; and what many hosts say.
#include "launcher/inspect/host_notes.h"
#include "launcher/inspect/member_news.h"
#include "tests/support/catch.h"

namespace dtrun::inspect {
namespace {

using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;
using namespace std::chrono_literals;

/// The lines that are told in so many seconds, looked for as often as a head does.
std::vector<std::string> told_in(MemberNews& news, Deadline& now, std::chrono::seconds span) {
    std::vector<std::string> lines;
    for (const Deadline end = now + span; now < end; now += 500ms)
        if (auto line = news.look(now)) lines.push_back(std::move(*line));
    return lines;
}

plan::DaemonTarget target_of(std::string_view job) {
    plan::DaemonTarget target;
    target.name = "dtrun serve at head";
    target.host = "head";
    target.job = job;
    return target;
}

}  // namespace

TEST_CASE("what is waited for is told after two seconds, and then once a minute", "[waiting]") {
    WaitingNews news;
    Deadline now{};
    std::vector<int> told;
    for (int half = 0; half < 400; ++half, now += 500ms)
        if (news.look(now)) told.push_back(half / 2);
    CHECK(told == std::vector{2, 62, 122, 182});
    CHECK(news.over());
    CHECK_FALSE(news.over());
    CHECK_FALSE(news.look(now));
    CHECK_FALSE(news.over());  // too soon to be told
}

TEST_CASE("the moment until which somebody waits has no more digits than it needs", "[waiting]") {
    CHECK(until_text(std::nullopt, "--grace").empty());
    CHECK(until_text(30s, "--grace").size() == std::string(" (until 18:45:00, --grace)").size());
    CHECK(until_text(600s, "--grace").size() == std::string(" (until 18:45, --grace)").size());
    CHECK_THAT(until_text(24h, "--grace"), StartsWith(" (until ") && EndsWith(", --grace)"));
    CHECK(missing_text(1, 2) == "1 of 2 ranks is there; waiting for 1 more");
    CHECK(missing_text(0, 4) == "0 of 4 ranks are there; waiting for 4 more");
}

TEST_CASE("a member says for whom it waits, and that all have come", "[waiting]") {
    const plan::DaemonTarget target = target_of("t");
    MemberNews news(target, false);
    Deadline now{};
    news.daemon_there();
    CHECK(told_in(news, now, 5s).empty());  // as with a daemon that does not say so
    news.daemon_says(Gathering{1, 2, true, 600'000});
    const auto lines = told_in(news, now, 70s);
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[0], StartsWith("job t: 1 of 2 ranks is there; waiting for 1 more: the same "
                                    "command on another node (until ") &&
                             EndsWith(", --start-timeout)"));
    news.daemon_says(std::nullopt);
    news.begins(1);
    CHECK(told_in(news, now, 5s) == std::vector<std::string>{"job t: all are there"});
    CHECK(told_in(news, now, 600s).empty());
}

TEST_CASE("a member that comes at once says nothing of waiting", "[waiting]") {
    const plan::DaemonTarget target = target_of("t");
    MemberNews news(target, false);
    Deadline now{};
    news.daemon_says(Gathering{1, 2, true, 0});
    CHECK(told_in(news, now, 1s).empty());
    news.begins(1);
    CHECK(told_in(news, now, 600s).empty());
}

TEST_CASE("a member whose own ranks have ended says that it waits for the others", "[waiting]") {
    const plan::DaemonTarget target = target_of("t");
    MemberNews news(target, false);
    Deadline now{};
    news.begins(2);
    news.rank_ended();
    CHECK(told_in(news, now, 60s).empty());
    news.rank_ended();
    CHECK(told_in(news, now, 3s) ==
          std::vector<std::string>{"job t: the ranks of this host have ended; waiting for the "
                                   "others"});
    news.pauses();
    CHECK(told_in(news, now, 60s).empty());
}

TEST_CASE("a member whose job has lost too many, or does without it, says so", "[waiting]") {
    const plan::DaemonTarget target = target_of("t");
    MemberNews news(target, false);
    Deadline now{};
    news.daemon_says(Gathering{2, 4, false, 30'000});
    CHECK_THAT(told_in(news, now, 3s).at(0), EndsWith(", --elastic-timeout)"));
    news.daemon_says(Gathering{4, 0, false, 0});
    CHECK(told_in(news, now, 60s) ==
          std::vector<std::string>{"job t runs with 4 ranks, and this host is a spare"});
}

TEST_CASE("a member says that it waits for the daemon, and how long", "[waiting]") {
    const plan::DaemonTarget target = target_of("t");
    const bool by_hand = GENERATE(false, true);
    MemberNews news(target, by_hand);
    Deadline now{};
    news.daemon_away({Errc::unreachable, "Connection refused"}, now + 600s);
    CHECK_THAT(told_in(news, now, 3s).at(0),
               StartsWith("waiting for dtrun serve at head: Connection refused (until ") &&
                   EndsWith(by_hand ? ", --start-timeout)" : ", --connect-timeout)"));
    news.daemon_there();
    CHECK(told_in(news, now, 5s).empty());
    news.begins(1);
    news.daemon_away({Errc::closed, "connection closed"}, now + 60s);
    CHECK_THAT(told_in(news, now, 3s).at(0), EndsWith(", --server-timeout)"));
}

TEST_CASE("the node that serves the job says where the others find it, and what they need",
          "[waiting]") {
    plan::DaemonTarget target = target_of("none");
    target.port = 30'500;
    target.serve = Secret::random();
    target.secret_source = "/home/al/.config/dtrun/secret";
    MemberNews news(target, true);
    Deadline now{};
    news.daemon_says(Gathering{1, 2, true, 600'000});
    CHECK_THAT(told_in(news, now, 3s).at(0),
               Contains("the same command on another node, which finds this one at head:30500 and "
                        "needs the secret of /home/al/.config/dtrun/secret (until "));
}

TEST_CASE("what many hosts say alike is one line that names them and their ranks", "[notes]") {
    HostNotes notes;
    const auto say = [&notes](std::uint32_t host, std::string_view what) {
        const std::string name = fmt::format("n{:02}", host);
        return notes.add(HostId{host}, name, fmt::format("{}: {}", name, what));
    };
    CHECK(say(3, "the package cannot be stored: No space left on device"));
    for (const std::uint32_t host : {1u, 2u, 5u, 4u, 1u})
        CHECK_FALSE(say(host, "the package cannot be stored: No space left on device"));
    CHECK_FALSE(say(9, "the package cannot be stored: Disk quota exceeded"));
    for (std::uint32_t rank = 0; rank < 8; ++rank)
        CHECK_FALSE(say(1 + rank / 4, fmt::format("rank {} was bound to processors {}, but uses 0",
                                                  rank, rank % 4)));
    CHECK_FALSE(notes.add(HostId{7}, "n07", "rank 40 called MPI_Comm_spawn"));
    CHECK_FALSE(notes.add(HostId{6}, "n06", "rank 30 called MPI_Comm_spawn"));
    CHECK(notes.take() ==
          std::vector<std::string>{
              "n[01-05] (5): the package cannot be stored: No space left on device",
              "n09: the package cannot be stored: Disk quota exceeded",
              "n01 and n02, ranks 0, 4: rank … was bound to processors 0, but uses 0",
              "n01 and n02, ranks 1, 5: rank … was bound to processors 1, but uses 0",
              "n01 and n02, ranks 2, 6: rank … was bound to processors 2, but uses 0",
              "n01 and n02, ranks 3, 7: rank … was bound to processors 3, but uses 0",
              "n06 and n07, ranks 30, 40: rank … called MPI_Comm_spawn"});
    CHECK(notes.take().empty());
}

TEST_CASE("what one host says stays as it is, and begins a wait of its own", "[notes]") {
    HostNotes notes;
    for (const std::string what : {"n1: rank 7 hangs, as rank 8 does", "drank 3", "rank x", ""}) {
        CHECK(notes.add(HostId{1}, "n1", what));
        CHECK_FALSE(notes.add(HostId{1}, "n1", what));
        CHECK(notes.take() == std::vector<std::string>{what});
    }
    CHECK(notes.add(HostId{1}, "n1", "n1: rank 7 hangs, as rank 8 does"));
    CHECK_FALSE(notes.add(HostId{2}, "n2", "n2: rank 7 hangs, as rank 9 does"));
    CHECK(notes.take().size() == 2);
}

}  // namespace dtrun::inspect
