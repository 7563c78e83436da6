#include "collectives/coordinator/fusion.h"
#include "collectives/coordinator/negotiator.h"
#include "tests/support/catch.h"

#include <numeric>

using namespace dtrun::collectives;
using namespace std::chrono_literals;

namespace {

Request allreduce_of(std::string name, std::vector<std::int64_t> shape, DType type = DType::f32) {
    Request request;
    request.name = std::move(name);
    request.tensors = {{type, std::move(shape)}};
    return request;
}

Request without_data(std::string name, RequestKind operation) {
    Request request;
    request.name = std::move(name);
    request.operation = operation;
    return request;
}

std::vector<std::uint32_t> numbers(std::uint32_t size) {
    std::vector<std::uint32_t> names(size);
    std::iota(names.begin(), names.end(), 0u);
    return names;
}

/// Ranks that all see each other's messages.
class Ranks {
public:
    std::chrono::milliseconds now{0};

    explicit Ranks(std::vector<std::uint32_t> names, std::size_t requests_max = 1'000)
        : ranks_(names.size(), Negotiator(names, requests_max)), messages_(names.size()) {}
    explicit Ranks(std::uint32_t size, std::size_t requests_max = 1'000)
        : Ranks(numbers(size), requests_max) {}

    void announce(std::uint32_t rank, const Request& request,
                  std::vector<std::int64_t> extras = {}) {
        ranks_[rank].announce(messages_[rank], encode(request), extras);
    }
    std::size_t bytes(std::uint32_t rank) const { return messages_[rank].size(); }

    /// What all ranks have decided, which must be the same.
    std::vector<Response> cycle() {
        const std::vector<std::string_view> views(messages_.begin(), messages_.end());
        std::vector<std::vector<Response>> all;
        for (Negotiator& rank : ranks_) {
            auto decided = rank.take(views, now);
            REQUIRE(decided.has_value());
            all.push_back(std::move(*decided));
        }
        for (const auto& responses : all) {
            REQUIRE(responses.size() == all.front().size());
            for (std::size_t i = 0; i < responses.size(); ++i)
                CHECK(responses[i].request->name == all.front()[i].request->name);
        }
        for (std::string& message : messages_) message.clear();
        return all.front();
    }

    std::vector<Stalled> stalled() const { return ranks_.front().stalled(); }

private:
    std::vector<Negotiator> ranks_;
    std::vector<std::string> messages_;
};

std::vector<std::string> names(const std::vector<Response>& responses) {
    std::vector<std::string> list;
    for (const Response& response : responses) list.push_back(response.request->name);
    return list;
}

}  // namespace

TEST_CASE("Nothing is decided before all ranks have announced it", "[collectives]") {
    Ranks ranks(3);
    ranks.announce(0, allreduce_of("a", {4}));
    ranks.announce(2, allreduce_of("a", {4}));
    CHECK(ranks.cycle().empty());
    ranks.announce(1, allreduce_of("a", {4}));
    CHECK(names(ranks.cycle()) == std::vector<std::string>{"a"});
}

TEST_CASE("Decisions have the order in which the lowest rank has asked", "[collectives]") {
    Ranks ranks(2);
    for (const char* name : {"c", "a", "b"}) ranks.announce(0, allreduce_of(name, {4}));
    for (const char* name : {"a", "b", "c"}) ranks.announce(1, allreduce_of(name, {4}));
    CHECK(names(ranks.cycle()) == std::vector<std::string>{"c", "a", "b"});
}

TEST_CASE("A request that was sent once takes four bytes", "[collectives]") {
    Ranks ranks(2);
    for (int step = 0; step < 2; ++step) {
        for (std::uint32_t rank = 0; rank < 2; ++rank)
            ranks.announce(rank, allreduce_of("layer1.weight", {64, 3, 7, 7}));
        if (step == 1) CHECK(ranks.bytes(0) == 4);
        CHECK(ranks.cycle().size() == 1);
    }
}

TEST_CASE("Requests that were forgotten are sent again", "[collectives]") {
    Ranks ranks(2, 2);
    for (int step = 0; step < 10; ++step) {
        const Request request = allreduce_of("noname." + std::to_string(step / 2), {4});
        for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.announce(rank, request);
        CHECK(ranks.cycle().size() == 1);
    }
}

TEST_CASE("Ranks that disagree are told both wishes, once all have come", "[collectives]") {
    Ranks ranks(3);
    ranks.announce(0, allreduce_of("a", {17, 17}));
    ranks.announce(1, allreduce_of("a", {17, 18}));
    CHECK(ranks.cycle().empty());
    ranks.announce(2, allreduce_of("a", {17, 17}));
    const auto responses = ranks.cycle();
    REQUIRE(responses.size() == 1);
    CHECK(
        responses.front().failure ==
        "shapes for \"a\" differ between ranks: rank 0 has f32 [17, 17], rank 1 has f32 [17, 18]");
}

TEST_CASE("Differences are named by what they are", "[collectives]") {
    const Request one = allreduce_of("a", {3});
    Request other = allreduce_of("a", {3}, DType::i32);
    CHECK(difference(one, 0, one, 1).empty());
    CHECK(difference(one, 0, other, 1) ==
          "types for \"a\" differ between ranks: rank 0 has f32 [3], rank 1 has i32 [3]");
    other = one;
    other.reduce = Reduce::max;
    CHECK(difference(one, 0, other, 2) ==
          "operations for \"a\" differ between ranks: rank 0 has allreduce (sum) of f32 [3], rank "
          "2 has "
          "allreduce (max) of f32 [3]");
    Request first = one, second = one;
    first.operation = second.operation = RequestKind::broadcast;
    second.root = 1;
    CHECK(difference(first, 0, second, 1) ==
          "roots for \"a\" differ between ranks: rank 0 has 0, rank 1 has 1");
}

TEST_CASE("Ranks that have joined are not waited for", "[collectives]") {
    Ranks ranks(3);
    ranks.announce(1, without_data("join", RequestKind::join));
    ranks.announce(0, allreduce_of("a", {4}));
    ranks.announce(2, allreduce_of("a", {4}));
    auto responses = ranks.cycle();
    REQUIRE(names(responses) == std::vector<std::string>{"a"});
    CHECK(responses.front().present == std::vector<bool>{true, false, true});
    CHECK(responses.front().failure.empty());

    ranks.announce(0, without_data("join", RequestKind::join));
    CHECK(ranks.cycle().empty());
    ranks.announce(2, without_data("join", RequestKind::join));
    responses = ranks.cycle();
    REQUIRE(names(responses) == std::vector<std::string>{"join"});
    CHECK(responses.front().last_joined == 2);

    // Then all take part again.
    ranks.announce(0, allreduce_of("a", {4}));
    CHECK(ranks.cycle().empty());
}

TEST_CASE("What cannot be done with zeros fails when a rank has joined", "[collectives]") {
    Ranks ranks(2);
    ranks.announce(0, without_data("join", RequestKind::join));
    Request gather = allreduce_of("rows", {Request::kOwnRows, 3});
    gather.operation = RequestKind::allgather;
    ranks.announce(1, gather, {5});
    const auto responses = ranks.cycle();
    REQUIRE(responses.size() == 1);
    CHECK(responses.front().failure ==
          "allgather of f32 [any, 3] cannot be done for \"rows\" since rank 0 has joined and has "
          "no data");
}

TEST_CASE("Each rank's rows reach all ranks", "[collectives]") {
    Ranks ranks(2);
    Request gather = allreduce_of("rows", {Request::kOwnRows, 3});
    gather.operation = RequestKind::allgather;
    ranks.announce(0, gather, {5});
    ranks.announce(1, gather, {7});
    const auto responses = ranks.cycle();
    REQUIRE(responses.size() == 1);
    CHECK(responses.front().extras == std::vector<std::vector<std::int64_t>>{{5}, {7}});
}

TEST_CASE("A message that makes no sense is refused", "[collectives]") {
    Negotiator negotiator({0});
    for (const std::string& message :
         {std::string("abc"), std::string("\x05\0\0\0", 4), std::string("\xff\xff\xff\xff", 4)}) {
        const std::string_view view = message;
        CHECK_FALSE(negotiator.take({&view, 1}, 0ms).has_value());
    }
}

TEST_CASE("A request survives being sent", "[collectives]") {
    Request request = allreduce_of("a", {4, 0, 5}, DType::bf16);
    request.prescale = 0.25;
    request.format = 5;
    request.stochastic = true;
    request.tensors.push_back({DType::i64, {}});
    const auto decoded = decode_request(encode(request));
    REQUIRE(decoded.has_value());
    CHECK(*decoded == request);
    const std::string bytes = encode(request);
    for (std::size_t length = 0; length + request.name.size() < bytes.size(); ++length)
        CHECK_FALSE(decode_request(bytes.substr(0, length)).has_value());
}

TEST_CASE("Allreduces of one kind are fused up to a size", "[collectives]") {
    std::vector<Response> responses(5);
    const auto set = [&](std::size_t i, Request request) {
        responses[i].request = std::make_shared<const Request>(std::move(request));
    };
    set(0, allreduce_of("a", {100}));
    set(1, allreduce_of("b", {100}, DType::f64));
    set(2, without_data("c", RequestKind::barrier));
    set(3, allreduce_of("d", {100}));
    set(4, allreduce_of("e", {100}));
    const auto batches = plan_batches(responses, 800);
    REQUIRE(batches.size() == 4);
    CHECK(batches[0].parts.size() == 2);
    CHECK(batches[0].parts[1].response == 3);
    CHECK(batches[1].parts.size() == 1);
    CHECK((batches[2].parts.empty() && batches[2].response == 2));
    CHECK(batches[3].parts.front().response == 4);
}

namespace {

/// Ranks, and what is told of those that wait.
struct Waiting {
    Ranks ranks;
    StallCheck check;

    explicit Waiting(std::uint32_t size, StallTimes times = {})
        : ranks(size), check(times, numbers(size)) {}

    /// What is found once all that was announced up to that time is known to have been open then.
    StallCheck::Findings found_at(std::chrono::milliseconds now) {
        ranks.now = now;
        for (int cycles = 0; cycles < 3; ++cycles) CHECK(ranks.cycle().empty());
        return check.look(ranks.stalled(), now);
    }
    std::vector<std::string> told_at(std::chrono::milliseconds now) { return found_at(now).lines; }
};
using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("Who waits and who has not come is told after a minute", "[collectives][stall]") {
    Waiting job(3);
    for (const std::uint32_t rank : {0u, 2u})
        for (const char* name : {"allreduce.weight", "allreduce.bias"})
            job.ranks.announce(rank, allreduce_of(name, {4}));
    CHECK(job.told_at(0s).empty());
    CHECK(job.told_at(59'999ms).empty());
    CHECK(job.told_at(60s) == Lines{"\"allreduce.weight\" and \"allreduce.bias\": ranks 0, 2 have "
                                    "waited for 60 s; rank 1 has not asked for them"});
}

TEST_CASE("What waits longer is told again each time that it has waited twice as long",
          "[collectives][stall]") {
    Waiting job(2);
    job.ranks.announce(0, without_data("barrier", RequestKind::barrier));
    std::vector<std::int64_t> told;
    for (std::chrono::seconds now{0}; now < 5h; now += 30s)
        if (!job.told_at(now).empty()) told.push_back(now.count());
    CHECK(told ==
          std::vector<std::int64_t>{60, 120, 240, 480, 960, 1920, 3840, 7440, 11040, 14640});
}

TEST_CASE("Operations that come while others wait for the same ranks are not told at once again",
          "[collectives][stall]") {
    Waiting job(2);
    job.ranks.announce(0, allreduce_of("a", {4}));
    CHECK(job.told_at(0s).empty());
    job.ranks.announce(0, allreduce_of("b", {4}));
    job.ranks.announce(0, allreduce_of("c", {4}));
    CHECK(job.told_at(30s).empty());
    CHECK(job.told_at(60s) ==
          Lines{"\"a\" and 2 others: rank 0 has waited for 60 s; rank 1 has not asked for them"});
    CHECK(job.told_at(90s).empty());
}

TEST_CASE("A rank that comes late is not told of any more, and what it does next is told anew",
          "[collectives][stall]") {
    Waiting job(2);
    job.ranks.announce(0, allreduce_of("a", {4}));
    CHECK(job.told_at(0s).empty());
    CHECK(job.told_at(100s).size() == 1);
    job.ranks.announce(1, allreduce_of("a", {4}));
    job.ranks.now = 101s;
    CHECK(job.ranks.cycle().size() == 1);
    CHECK(job.told_at(102s).empty());
    job.ranks.announce(0, allreduce_of("a", {4}));
    CHECK(job.told_at(103s).empty());
    CHECK(job.told_at(163s).size() == 1);
}

TEST_CASE("Ranks that wait for each other under other names are told what the others wait for",
          "[collectives][stall]") {
    Waiting job(2);
    job.ranks.announce(0, allreduce_of("allreduce.k", {4}));
    job.ranks.announce(1, allreduce_of("allgather.k", {4}));
    CHECK(job.told_at(0s).empty());
    CHECK(job.told_at(60s) ==
          Lines{"\"allreduce.k\": rank 0 has waited for 60 s; rank 1 has not asked for it, but for "
                "\"allgather.k\"",
                "\"allgather.k\": rank 1 has waited for 60 s; rank 0 has not asked for it, but for "
                "\"allreduce.k\""});
}

TEST_CASE("A join waits without a word as long as other ranks have data", "[collectives][stall]") {
    Waiting job(2);
    job.ranks.announce(0, without_data("join", RequestKind::join));
    for (std::chrono::seconds now{0}; now <= 200s; now += 50s) {
        CHECK(job.told_at(now).empty());
        job.ranks.announce(1, allreduce_of("a", {4}));
        REQUIRE(job.ranks.cycle().size() == 1);
        CHECK(job.ranks.cycle().empty());
    }
    CHECK(job.told_at(260s) ==
          Lines{"\"join\": rank 0 has waited for 60 s; rank 1 has not asked for it"});
}

TEST_CASE("Ranks that have joined are not among those that are missed", "[collectives][stall]") {
    Waiting job(3);
    job.ranks.announce(1, without_data("join", RequestKind::join));
    job.ranks.announce(0, allreduce_of("a", {4}));
    CHECK(job.told_at(0s).empty());
    CHECK(job.told_at(60s) ==
          Lines{"\"a\": rank 0 has waited for 60 s; rank 2 has not asked for it"});
}

TEST_CASE("After the shutdown time everything is given up, with the ranks' names",
          "[collectives][stall]") {
    Waiting job(2, {.warning = 60s, .shutdown = 100s});
    job.ranks.announce(1, allreduce_of("a", {4}));
    CHECK(job.told_at(0s).empty());
    CHECK(job.found_at(99s).shutdown.empty());
    CHECK(
        job.found_at(100s).shutdown ==
        "\"a\": rank 1 has waited for 100 s; rank 0 has not asked for it: that is longer than the "
        "shutdown time");
}

TEST_CASE("A join is told and never given up, whatever it waits for", "[collectives][stall]") {
    Waiting job(2, {.warning = 60s, .shutdown = 100s});
    job.ranks.announce(1, without_data("join", RequestKind::join));
    CHECK(job.told_at(0s).empty());
    const auto found = job.found_at(1h);
    CHECK(found.shutdown.empty());
    CHECK(found.lines ==
          Lines{"\"join\": rank 1 has waited for 3600 s; rank 0 has not asked for it"});
}

TEST_CASE("What comes at the end of an exchange that took long is not old",
          "[collectives][stall]") {
    Waiting job(2, {.warning = 60s, .shutdown = 100s});
    const auto find_at = [&](std::chrono::milliseconds now) {
        job.ranks.now = now;
        CHECK(job.ranks.cycle().empty());
        return job.check.look(job.ranks.stalled(), now);
    };
    const auto is_quiet_at = [&](std::chrono::milliseconds now) {
        const auto found = find_at(now);
        return found.lines.empty() && found.shutdown.empty();
    };
    // The exchange that the first rank begins at 1 s is over at 500 s, when the other one asks.
    CHECK(is_quiet_at(0s));
    job.ranks.announce(1, allreduce_of("a", {4}));
    CHECK(is_quiet_at(1s));
    CHECK(is_quiet_at(500s));
    // Nor does the first rank know at 900 s what the others have said since it was stopped at 501 s.
    CHECK(is_quiet_at(501s));
    CHECK(is_quiet_at(900s));
    CHECK(find_at(901s).shutdown.starts_with("\"a\": rank 1 has waited for 400 s"));
}

TEST_CASE("A join that waits since others had work is not old once that has taken long",
          "[collectives][stall]") {
    Waiting job(2);
    job.ranks.announce(0, without_data("join", RequestKind::join));
    CHECK(job.told_at(0s).empty());
    job.ranks.announce(1, allreduce_of("a", {4}));
    REQUIRE(job.ranks.cycle().size() == 1);  // it is done until 500 s
    CHECK(job.check.look(job.ranks.stalled(), 0s).lines.empty());
    CHECK(job.told_at(500s).empty());
    CHECK(job.told_at(560s).size() == 1);
}

TEST_CASE("Ranks of a part of the job are called by their ranks in the job",
          "[collectives][stall]") {
    std::vector<std::uint32_t> names(40);
    for (std::uint32_t rank = 0; rank < 40; ++rank) names[rank] = rank < 4 ? rank + 4 : rank * 2;
    Ranks ranks(names);
    StallCheck check({}, names);
    ranks.announce(3, allreduce_of("a", {4}));
    ranks.announce(5, allreduce_of("a", {5}));
    for (const auto now : {0s, 0s, 60s, 60s}) {
        ranks.now = now;
        CHECK(ranks.cycle().empty());
    }
    CHECK(check.look(ranks.stalled(), 60s).lines ==
          Lines{"\"a\": ranks 7, 10 have waited for 60 s; ranks 4-6, 8, 12, 14, 16, 18, 20, 22 and "
                "28 more have not asked for it"});
    for (std::uint32_t rank = 0; rank < 40; ++rank)
        if (rank != 3 && rank != 5) ranks.announce(rank, allreduce_of("a", {4}));
    const auto responses = ranks.cycle();
    REQUIRE(responses.size() == 1);
    CHECK(responses.front().failure ==
          "shapes for \"a\" differ between ranks: rank 7 has f32 [4], rank 10 has f32 [5]");
}

TEST_CASE("A rank that hears nothing of the others tells what it waits for",
          "[collectives][stall]") {
    SilenceCheck check;
    CHECK(check.look(100s, 60s, "a", 1).line.empty());
    check.begin(100s);
    CHECK(check.look(159s, 60s, "a", 1).line.empty());
    CHECK(check.look(160s, 0s, "a", 1).line.empty());
    CHECK(check.look(160s, 60s, "a", 1).line ==
          "\"a\" has waited for 60 s: some rank has asked for nothing, or is stopped");
    CHECK(check.look(219s, 60s, "a", 1).line.empty());
    CHECK(
        check.look(220s, 60s, "a", 5).line ==
        "\"a\" and 4 others have waited for 120 s: some rank has asked for nothing, or is stopped");
    CHECK(check.end() == "\"a\" and 4 others; some rank has asked for nothing, or is stopped");
    CHECK(check.look(500s, 60s, "a", 1).line.empty());
    check.begin(500s);
    CHECK(check.look(501s, 60s, "a", 1).line.empty());
}

TEST_CASE("What has been told is the same thing until the first of it goes on",
          "[collectives][stall]") {
    Waiting job(2);
    const auto told_at = [&job](std::chrono::milliseconds now) {
        std::vector<std::string> told;
        for (const auto& [what, waiting, age] : job.found_at(now).told) {
            CHECK(waiting == std::vector<std::uint32_t>{0});
            told.push_back(what);
        }
        return told;
    };
    job.ranks.announce(0, allreduce_of("a", {4}));
    CHECK(told_at(0s).empty());
    CHECK(told_at(59s).empty());
    CHECK(told_at(60s) == Lines{"\"a\"; rank 1 has not asked for it"});
    job.ranks.announce(0, allreduce_of("b", {4}));
    CHECK(told_at(61s) == Lines{"\"a\"; rank 1 has not asked for it"});
    job.ranks.announce(1, allreduce_of("a", {4}));
    REQUIRE(job.ranks.cycle().size() == 1);
    CHECK(told_at(62s).empty());
    CHECK(told_at(122s) == Lines{"\"b\"; rank 1 has not asked for it"});
}

TEST_CASE("Whoever looks at the job is told of each stall once, and of its end",
          "[collectives][stall]") {
    std::vector<std::string> said;
    StallReports reports([&](const std::string& what,
                             std::optional<std::chrono::milliseconds> waited) {
        said.push_back(waited ? fmt::format("{} {}", what, waited->count()) : what + " is over");
    });
    reports.add("a", 60s);
    reports.add("a", 61s);
    reports.add("b", 60s);
    reports.keep_only({"b"});
    reports.end("a");
    reports.end("b");
    reports.add("a", 70s);
    CHECK(said == Lines{"a 60000", "b 60000", "a is over", "b is over", "a 70000"});
}
