#include "collectives/communicator/watchdog.h"

#include "base/fd.h"
#include "collectives/user_text.h"
#include "tests/collectives/support/memory_store.h"
#include "tests/support/catch.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>

using namespace dtrun;
using namespace dtrun::collectives;
using Catch::Contains;
using Catch::StartsWith;
using std::chrono::milliseconds;

namespace {

/// What a watchdog has said, in order.
class Said {
public:
    void add(const std::string& text) {
        const std::lock_guard lock(mutex_);
        texts_.push_back(text);
        said_.notify_all();
    }
    /// The text with this number, from 0 on, once it is there.
    std::string at(std::size_t number) const {
        std::unique_lock lock(mutex_);
        REQUIRE(said_.wait_for(lock, milliseconds(20'000), [&] { return texts_.size() > number; }));
        return texts_[number];
    }
    std::size_t count() const {
        const std::lock_guard lock(mutex_);
        return texts_.size();
    }

private:
    mutable std::mutex mutex_;
    mutable std::condition_variable said_;
    std::vector<std::string> texts_;
};

void wait_for(KeyStore& store, const std::string& key) {
    REQUIRE(store.get({&key, 1}, milliseconds(20'000)).has_value());
}

/// A rank whose operations end when they are aborted.
class Rank {
public:
    Rank(KeyStore& store, std::uint32_t rank, std::uint32_t size, milliseconds timeout = {},
         const std::string& prefix = "comm", milliseconds stall = {})
        : watchdog_(
              {.store = &store,
               .prefix = prefix,
               .rank = rank,
               .size = size,
               .ranks = numbers_below(size),
               .timeout = timeout,
               .stall = {.limit = stall,
                         .tell_user = [this](const std::string& line) { lines_.add(line); },
                         .report =
                             [this](const std::string& what, auto waited) {
                                 reports_.add((waited ? "stalled: " : "over: ") + what);
                             }},
               .name = [](std::uint32_t who) { return fmt::format("rank {} on s{}", who, who); },
               .abort = [this] { aborted_.set_value(); },
               .whereabouts = [](std::uint32_t who) { return fmt::format("waits/{}", who); }}) {}

    std::uint64_t begin(const Call& call) { return watchdog_.begin(call); }
    void end() { watchdog_.end(); }
    void set_timeout(milliseconds timeout) { watchdog_.set_timeout(timeout); }
    const Said& lines() const { return lines_; }
    const Said& reports() const { return reports_; }
    void withdraw(const Call& call) {
        watchdog_.end();
        watchdog_.withdraw(call);
    }
    void abort(const std::string& why) { watchdog_.abort(why); }
    void disagreed(const std::string& how) { watchdog_.disagreed(how); }
    void membership_ended() { watchdog_.membership_ended(); }
    std::vector<std::string> keys() const { return watchdog_.keys(); }
    /// Whether an operation that hangs was ended.
    bool ended(milliseconds within = milliseconds(20'000)) {
        return ended_.wait_for(within) == std::future_status::ready;
    }
    Error explain(Errc code, const std::string& text, std::optional<std::uint32_t> lost = {}) {
        watchdog_.end();
        return watchdog_.explain({code, text}, lost);
    }

private:
    static std::vector<std::uint32_t> numbers_below(std::uint32_t size) {
        std::vector<std::uint32_t> numbers(size);
        std::iota(numbers.begin(), numbers.end(), 0u);
        return numbers;
    }

    Said lines_, reports_;
    std::promise<void> aborted_;
    std::shared_future<void> ended_ = aborted_.get_future().share();
    Watchdog watchdog_;
};

/// Refuses what is set at some key, as one that ends early.
class RefusingStore final : public KeyStore {
public:
    using Refuses = std::function<std::optional<Errc>(const KeyStore::Pair&)>;

    explicit RefusingStore(Refuses refuses) : refuses_(std::move(refuses)) {}

    Result<void> set(std::span<const Pair> pairs) override {
        const auto code = refuses_(pairs.front());
        if (!code) return store_.set(pairs);
        ++refused_;
        refused_.notify_all();
        return fail(*code, "refused");
    }
    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         milliseconds timeout) override {
        return store_.get(keys, timeout);
    }
    Result<std::optional<std::string>> find(const std::string& key) override {
        return store_.find(key);
    }
    void wait_for_refused(int count) {
        for (int seen = refused_; seen < count; seen = refused_) refused_.wait(seen);
    }

private:
    MemoryStore store_;
    const Refuses refuses_;
    std::atomic<int> refused_ = 0;
};

/// Answers nothing, as one whose process stands still.
class SilentStore final : public KeyStore {
public:
    Result<void> set(std::span<const Pair>) override {
        FAIL("has no time limit");
        return {};
    }
    Result<std::vector<std::string>> get(std::span<const std::string>, milliseconds) override {
        return fail(Errc::timed_out, "no answer");
    }
    Result<std::optional<std::string>> find(const std::string&) override {
        return fail(Errc::timed_out, "no answer");
    }
};

const Call kTen{.operation = "allreduce", .count = 10, .reduce = 0};
const Call kTake{
    .operation = "recv", .count = 4, .root = 1, .collective = false, .receives = {1, 4}};
const Call kTwelve{.operation = "allreduce", .count = 12, .reduce = 0};

}  // namespace

TEST_CASE("the same operation has the same number on all ranks, and any other another",
          "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    const auto ten = first.begin(kTen);
    first.end();
    CHECK(second.begin(kTen) == ten);
    second.end();
    CHECK(first.begin(kTen) != ten);  // it is the second
    first.end();
    CHECK(second.begin(kTwelve) != ten);
    second.end();
}

TEST_CASE("an operation ends at once when the launcher has lost a rank", "[collectives][elastic]") {
    MemoryStore store;
    Rank first(store, 0, 2);
    first.begin(kTen);
    first.membership_ended();
    first.membership_ended();  // once is enough
    REQUIRE(first.ended(milliseconds(0)));
    const Error error = first.explain(Errc::cancelled, "aborted");
    CHECK(error.code == Errc::closed);
    CHECK(error.message == "a rank of this generation is lost");
}

TEST_CASE("ranks that disagree about an operation learn who wants what", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    first.begin(kTen);
    second.begin(kTwelve);
    REQUIRE(first.ended());
    REQUIRE(second.ended());
    const Error error = first.explain(Errc::cancelled, "aborted");
    CHECK(error.code == Errc::invalid_input);
    CHECK(error.message ==
          "ranks disagree: rank 0 on s0 calls allreduce of 10 f32 (sum), rank 1 on s1 calls "
          "allreduce of 12 f32 (sum)");
    const Error other = second.explain(Errc::cancelled, "aborted");
    CHECK(other.code == Errc::invalid_input);
    CHECK_THAT(other.message, Contains("calls allreduce of 10 f32 (sum)"));
}

TEST_CASE("a rank that has left an operation which others never came to is found out",
          "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    first.begin({.operation = "broadcast", .count = 3, .root = 0});  // a root need not wait
    first.end();
    first.begin(kTen);
    second.begin(kTen);
    REQUIRE(first.ended());
    REQUIRE(second.ended());
    for (Rank* rank : {&first, &second})
        CHECK_THAT(
            rank->explain(Errc::cancelled, "aborted").message,
            Contains("broadcast of 3 f32 (root 0)") && Contains("allreduce of 10 f32 (sum)"));
}

TEST_CASE("the same sum of other counts is another operation", "[collectives]") {
    const std::vector<std::size_t> one{3, 5}, other{5, 3}, none;
    CHECK(digest(one) != digest(other));
    CHECK(digest(none) != 0);
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    Call call{.operation = "allgatherv", .count = 8, .parts = digest(one)};
    const auto number = first.begin(call);
    call.parts = digest(other);
    CHECK(second.begin(call) != number);
    CHECK(first.ended());
    CHECK(second.ended());
}

TEST_CASE("a rank that tries whether compression gains disagrees with one that does not",
          "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    Call call{.operation = "allreduce", .count = 10, .reduce = 0, .format = 5};
    const auto number = first.begin(call);
    call.on_trial = true;
    CHECK(second.begin(call) != number);
    REQUIRE(first.ended());
    REQUIRE(second.ended());
    CHECK_THAT(first.explain(Errc::cancelled, "aborted").message,
               Contains("allreduce of 10 f32 (sum, int8), rank 1 on s1 calls allreduce of 10 f32 "
                        "(sum, int8, on trial)"));
}

TEST_CASE("ranks that blame each other learn who was before them", "[collectives]") {
    for (const bool aborts : {true, false}) {
        MemoryStore store;
        Rank first(store, 0, 3), second(store, 1, 3), third(store, 2, 3);
        for (Rank* rank : {&first, &second}) rank->begin(kTen);
        if (aborts) third.begin(kTen), third.abort("enough");  // else it is gone
        auto zero =
            std::async(std::launch::async, [&] { return first.explain(Errc::closed, "reset", 1); });
        auto one = std::async(std::launch::async,
                              [&] { return second.explain(Errc::closed, "reset", 0); });
        for (auto* error : {&zero, &one})
            CHECK_THAT(error->get().message, Contains(aborts ? "rank 2 on s2 has ended it: enough"
                                                             : "rank 2 on s2 is gone"));
        third.end();
    }
}

TEST_CASE("the rank at the bottom of broken connections is named on all others", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 4), second(store, 1, 4), third(store, 2, 4);
    const Call call = kTen;
    for (Rank* rank : {&first, &second, &third}) rank->begin(call);
    // 3 is gone, which 2 sees; 1 sees that 2 has closed its connections, and 0 that 1 has.
    auto zero =
        std::async(std::launch::async, [&] { return first.explain(Errc::closed, "reset", 1); });
    auto one =
        std::async(std::launch::async, [&] { return second.explain(Errc::closed, "reset", 2); });
    const Error two = third.explain(Errc::closed, "reset by peer", 3);
    CHECK(two.code == Errc::closed);
    CHECK(two.message == "rank 3 on s3 is gone: reset by peer");
    CHECK_THAT(zero.get().message, Contains("rank 3 on s3 is gone"));
    CHECK_THAT(one.get().message, Contains("rank 3 on s3 is gone"));
}

TEST_CASE(
    "abort ends this rank's operation and, by the store, that of ranks nobody is connected to",
    "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    second.begin(kTen);
    first.begin(kTen);
    first.abort("the user has had enough");
    REQUIRE(first.ended());
    const Error own = first.explain(Errc::cancelled, "aborted");
    CHECK(own.code == Errc::cancelled);
    CHECK(own.message == "the user has had enough");
    REQUIRE(second.ended());
    const Error theirs = second.explain(Errc::cancelled, "aborted");
    CHECK(theirs.code == Errc::closed);
    CHECK(theirs.message == "rank 0 on s0 has ended it: the user has had enough");
}

TEST_CASE("an operation that takes longer than it may names who has not come", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 3, milliseconds(1'500)), second(store, 1, 3);
    first.begin(kTen);
    second.begin(kTen);
    REQUIRE(first.ended());
    const Error error = first.explain(Errc::cancelled, "aborted");
    CHECK(error.code == Errc::timed_out);
    CHECK(error.message ==
          "allreduce of 10 f32 (sum) took longer than 1.5 s; not there: rank 2 on s2");
    second.end();
}

TEST_CASE("a time limit that is set while an operation is under way ends it", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2);
    first.begin(kTen);
    first.set_timeout(milliseconds(1'000));
    REQUIRE(first.ended());
    CHECK_THAT(first.explain(Errc::cancelled, "aborted").message,
               StartsWith("allreduce of 10 f32 (sum) took longer than 1 s; not there: rank 1"));
}

TEST_CASE("a rank that does not come is told by the first of those that wait, and nothing ends",
          "[collectives]") {
    MemoryStore store;
    const milliseconds limit(1'000);
    Rank first(store, 0, 4, {}, "comm", limit), second(store, 1, 4, {}, "comm", limit),
        third(store, 2, 4, {}, "comm", limit);
    for (Rank* rank : {&second, &third}) {
        rank->begin(kTen);
        wait_for(store, rank == &second ? "comm/at/1" : "comm/at/2");
    }
    first.begin(kTen);
    const std::string what = "allreduce of 10 f32 (sum), operation 1 of 4 ranks";
    CHECK_THAT(first.lines().at(0), StartsWith(what + ": ranks 0-2 have waited for ") &&
                                        Contains(" s; rank 3 on s3 has not come"));
    // Those that came first may have told of rank 0, too, before it came.
    for (Rank* rank : {&first, &second, &third})
        CHECK_THAT(rank->reports().at(0), StartsWith("stalled: " + what + "; rank "));
    CHECK(third.lines().count() == 0);
    for (Rank* rank : {&first, &second, &third}) {
        rank->end();
        CHECK_THAT(rank->reports().at(1), StartsWith("over: " + what + "; rank "));
        CHECK_FALSE(rank->ended(milliseconds(0)));
    }
}

TEST_CASE("a rank that has left an operation early is not told to be missing from it",
          "[collectives]") {
    MemoryStore store;
    const Call call{.operation = "broadcast", .count = 3, .root = 0};
    Rank root(store, 0, 3, {}, "comm", milliseconds(1'000)),
        second(store, 1, 3, {}, "comm", milliseconds(1'000));
    root.begin(call);
    root.end();
    wait_for(store, "comm/at/0");
    second.begin(call);
    CHECK_THAT(second.lines().at(0),
               StartsWith("broadcast of 3 f32 (root 0), operation 1 of 3 ranks: rank 1 has "
                          "waited for ") &&
                   Contains(" s; rank 2 on s2 has not come"));
    second.end();
}

TEST_CASE(
    "a rank that comes late to an operation with a root and leaves at once is soon known to have "
    "come",
    "[collectives]") {
    MemoryStore store;
    Rank second(store, 1, 3, {}, "comm", milliseconds(60'000));  // of which half is not waited for
    second.begin({.operation = "reduce", .count = 3, .reduce = 0, .root = 0});
    second.end();
    wait_for(store, "comm/at/1");
    CHECK(**store.find("comm/at/1") == "1 reduce of 3 f32 (sum, root 0)\nidle\n");
}

TEST_CASE("a message whose other rank does not come is told, and one that goes slowly is not",
          "[collectives]") {
    MemoryStore slow_store, store;
    const milliseconds limit(1'000);
    Rank sends(slow_store, 1, 2, {}, "comm", limit), takes(slow_store, 0, 2, {}, "comm", limit);
    sends.begin({.operation = "send", .count = 4, .root = 0, .collective = false, .sends = {0, 4}});
    wait_for(slow_store, "comm/message/1");
    takes.begin(kTake);
    Rank alone(store, 0, 2, {}, "comm", limit);
    alone.begin(kTake);
    CHECK_THAT(alone.lines().at(0), StartsWith("recv of 4 f32 (rank 1): rank 0 has waited for ") &&
                                        Contains(" s; rank 1 on s1 has not come"));
    CHECK(takes.lines().count() == 0);
    for (Rank* rank : {&sends, &takes, &alone}) rank->end();
}

TEST_CASE("a rank that has done its part of a message is not told to be missing from it",
          "[collectives]") {
    for (const bool goes_on : {true, false}) {
        MemoryStore store;
        const milliseconds limit(1'000);
        Rank first(store, 0, 3, {}, "comm", limit), second(store, 1, 3, {}, "comm", limit);
        second.begin(
            {.operation = "send", .count = 4, .root = 0, .collective = false, .sends = {0, 4}});
        second.end();
        if (goes_on)
            second.begin({.operation = "recv",
                          .count = 4,
                          .root = 2,
                          .collective = false,
                          .receives = {2, 4}});
        wait_for(store, "comm/messages/1");
        first.begin({.operation = "sendrecv",
                     .count = 4,
                     .root = 1,
                     .collective = false,
                     .sends = {2, 4},
                     .receives = {1, 4}});
        const std::string line = first.lines().at(0);
        CHECK_THAT(line, Contains(" s; rank 2 on s2 has not come"));
        for (Rank* rank : {&first, &second}) rank->end();
    }
}

TEST_CASE("what waits is told after its limit, and then each time that it has waited twice as long",
          "[collectives]") {
    using std::chrono::seconds;
    std::vector<std::string> lines, reports;
    StallTeller teller(
        {.limit = seconds(60),
         .tell_user = [&](const std::string& line) { lines.push_back(line); },
         .report = [&](const std::string& what,
                       auto waited) { reports.push_back((waited ? "" : "over: ") + what); }});
    std::vector<int> told;
    for (int second = 0; second < 20'000; ++second) {
        if (!teller.is_due(seconds(second))) continue;
        told.push_back(second);
        teller.tell("a", second == 60 ? "" : "line", seconds(second));
    }
    CHECK(told == std::vector{60, 120, 240, 480, 960, 1'920, 3'840, 7'440, 11'040, 14'640, 18'240});
    CHECK(lines.size() == told.size() - 1);  // the first one was another rank's to say
    CHECK(reports == std::vector<std::string>{"a"});
    teller.end();
    teller.end();
    CHECK(reports == std::vector<std::string>{"a", "over: a"});
    CHECK_FALSE(teller.is_due(seconds(59)));
    CHECK(teller.is_due(seconds(60)));  // of the next one
    teller.tell("b", "", seconds(60));
    teller.all_there(seconds(120));
    CHECK(reports.back() == "over: b");
    CHECK_FALSE(
        teller.is_due(seconds(239)));  // it is only slow, and ranks need not be asked all the time
    CHECK(teller.is_due(seconds(240)));
    teller.set_limit({});
    CHECK_FALSE(teller.is_due(seconds(1'000'000)));
}

TEST_CASE("ranks that wait in two communicators are told of each other when time is over",
          "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2, milliseconds(2'500)), second(store, 1, 2, {}, "other");
    first.begin(kTen);
    second.begin(kTwelve);
    REQUIRE(first.ended());
    CHECK_THAT(first.explain(Errc::cancelled, "aborted").message,
               Contains("; not there: rank 1 on s1 (waits in allreduce of 12 f32 (sum) of another "
                        "communicator)"));
    second.end();
}

TEST_CASE("a group that ends takes back where it waited, and leaves where another one waits",
          "[collectives]") {
    MemoryStore store;
    const std::vector<std::string> where{"waits/1"};
    {
        Rank ends(store, 1, 2, {}, "other");
        for (const std::string& key : ends.keys()) CHECK_THAT(key, StartsWith("other/"));
        ends.begin(kTen);
        REQUIRE(store.get(where, milliseconds(20'000)).has_value());
    }
    CHECK(**store.find(where[0]) == "");
    {
        Rank ends(store, 1, 2, {}, "other");
        ends.begin(kTen);
        const std::vector<std::string> told{"other/at/1"};
        REQUIRE(store.get(told, milliseconds(20'000)).has_value());
        REQUIRE(store.set(std::array{KeyStore::Pair{where[0], "comm\nbarrier"}}));
    }
    CHECK(**store.find(where[0]) == "comm\nbarrier");
}

TEST_CASE("a slow operation that has ended well stays so though the store has ended since",
          "[collectives]") {
    RefusingStore store([](const KeyStore::Pair& pair) -> std::optional<Errc> {
        if (pair.second.empty()) return Errc::closed;
        return std::nullopt;
    });
    std::atomic<bool> aborted = false;
    {
        Watchdog watch({.store = &store,
                        .prefix = "comm",
                        .rank = 0,
                        .size = 2,
                        .name = {},
                        .abort = [&] { aborted = true; },
                        .whereabouts = [](std::uint32_t) { return "waits"; }});
        watch.begin(kTen);
        const std::vector<std::string> told{"waits"};
        REQUIRE(store.get(told, milliseconds(20'000)).has_value());
        watch.end();
        store.wait_for_refused(1);
    }
    CHECK_FALSE(aborted);
}

TEST_CASE("nobody learns of an operation while they do not know the messages before it",
          "[collectives]") {
    RefusingStore store([](const KeyStore::Pair& pair) -> std::optional<Errc> {
        if (pair.first == "comm/messages/0") return Errc::timed_out;
        return std::nullopt;
    });
    Rank first(store, 0, 2);
    first.begin(kTake);
    first.end();
    first.begin(kTen);
    store.wait_for_refused(2);
    CHECK_FALSE(store.find("comm/at/0")->has_value());
    first.end();
}

TEST_CASE("a message that two ranks mean differently is found out by both", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    Call send{.operation = "send", .count = 10, .root = 1, .collective = false, .sends = {1, 10}};
    Call take{
        .operation = "recv", .count = 10, .root = 0, .collective = false, .receives = {0, 10}};
    first.begin(send);
    first.end();
    send.count = send.sends.count = 11;
    first.begin(send);  // the second, while the other one is in the first
    second.begin(take);
    CHECK_FALSE(first.ended(milliseconds(2'500)));
    second.end();
    take.count = take.receives.count = 12;
    second.begin(take);
    REQUIRE(first.ended());
    REQUIRE(second.ended());
    const Error error = second.explain(Errc::cancelled, "aborted");
    CHECK(error.code == Errc::invalid_input);
    CHECK(error.message == "ranks disagree: rank 0 on s0 sends 44 B, rank 1 on s1 receives 48 B");
    CHECK(first.explain(Errc::cancelled, "aborted").code == Errc::invalid_input);
}

TEST_CASE("a rank that waits for a message of one that waits for it in an operation of all is told",
          "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    second.begin(kTen);
    first.begin(kTake);
    REQUIRE(first.ended());
    REQUIRE(second.ended());
    for (Rank* rank : {&first, &second}) {
        const Error error = rank->explain(Errc::cancelled, "aborted");
        CHECK(error.code == Errc::invalid_input);
        CHECK(error.message ==
              "ranks disagree: rank 0 on s0 calls recv of 4 f32 (rank 1), rank 1 on s1 calls "
              "allreduce of 10 f32 (sum)");
    }
}

TEST_CASE("a rank waits for a message that is on its way, and for one that may still be sent",
          "[collectives]") {
    MemoryStore store, other;
    Rank first(store, 0, 2), second(store, 1, 2);
    second.begin(
        {.operation = "send", .count = 4, .root = 0, .collective = false, .sends = {0, 4}});
    second.end();
    second.begin(kTen);
    first.begin(kTake);
    Rank third(other, 0, 3), fourth(other, 1, 3);
    fourth.begin({.operation = "broadcast", .count = 3, .root = 2});  // which needs rank 2 alone
    third.begin(kTake);
    CHECK_FALSE(first.ended(milliseconds(2'500)));
    for (Rank* rank : {&second, &third, &fourth}) CHECK_FALSE(rank->ended(milliseconds(0)));
}

TEST_CASE("a disagreement that the backend has found out is every rank's", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2), second(store, 1, 2);
    first.begin(kTen);
    second.begin(kTen);
    first.disagreed("ranks disagree: as the backend says");
    CHECK(first.explain(Errc::denied, "").code == Errc::invalid_input);
    const Error theirs = second.explain(Errc::closed, "reset", 0);
    CHECK(theirs.code == Errc::invalid_input);
    CHECK(theirs.message == "ranks disagree: as the backend says");
}

TEST_CASE("where not all ranks are asked who is missing, the text says so", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 200, milliseconds(1'000));
    first.begin(kTen);
    REQUIRE(first.ended());
    CHECK_THAT(first.explain(Errc::cancelled, "aborted").message,
               Contains("; not there, among ranks 0-63: rank 1 on s1"));
    MemoryStore other;
    Rank broken(other, 0, 200);
    broken.begin(kTen);
    CHECK_THAT(broken.explain(Errc::closed, "reset").message,
               Contains("and 55 more, or one behind the first 64 ranks is gone: reset"));
}

TEST_CASE(
    "with many ranks each block of them tells who is missing from it, and the one before it if "
    "none is there",
    "[collectives]") {
    constexpr std::uint32_t kRanks = 70;
    const auto note_of = [](std::uint32_t rank, const Call& call) {
        return KeyStore::Pair{fmt::format("comm/at/{}", rank),
                              fmt::format("1 {}\n", describe(call))};
    };
    const std::string what = "allreduce of 10 f32 (sum), operation 1 of 70 ranks";
    MemoryStore one_missing, block_missing;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        const KeyStore::Pair note = note_of(rank, kTen);
        if (rank != 67) REQUIRE(one_missing.set({&note, 1}));
        if (rank >= 64) REQUIRE(block_missing.set({&note, 1}));
    }
    const milliseconds limit(1'000);
    Rank first(one_missing, 0, kRanks, {}, "comm", limit),
        second(one_missing, 64, kRanks, {}, "comm", limit),
        alone(block_missing, 64, kRanks, {}, "comm", limit);
    for (Rank* rank : {&first, &second, &alone}) rank->begin(kTen);
    const std::string missing = "rank 67 on s67 has not come, of ranks 64-69 that were asked";
    CHECK_THAT(second.lines().at(0),
               StartsWith(what + ": ranks 64-66, 68, 69 have waited for ") && Contains(missing));
    CHECK(first.reports().at(0) == "stalled: " + what + "; " + missing);
    CHECK(first.lines().count() == 0);
    CHECK_THAT(alone.lines().at(0),
               StartsWith(what + ": ranks 64-69 have waited for ") &&
                   Contains("and 56 more have not come, of ranks 0-63 that were asked"));
    for (Rank* rank : {&first, &second, &alone}) rank->end();
}

TEST_CASE("a refused operation that others may have read of is taken back", "[collectives]") {
    MemoryStore store;
    Rank first(store, 0, 2);
    first.begin(kTen);
    first.end();
    first.begin(kTwelve);
    const std::vector<std::string> note{"comm/at/0"};
    REQUIRE(store.get(note, milliseconds(20'000)).has_value());
    CHECK_THAT(**store.find(note[0]), Contains("2 allreduce of 12"));
    first.withdraw(kTwelve);
    CHECK(**store.find(note[0]) == "1 allreduce of 10 f32 (sum)\n");
}

TEST_CASE("timeouts and abort() act though the store does not answer", "[collectives]") {
    SilentStore store;
    Rank late(store, 0, 2, milliseconds(1'000)), aborts(store, 0, 2);
    late.begin(kTen);
    aborts.begin(kTen);
    aborts.abort("enough");
    CHECK(aborts.ended(milliseconds(0)));
    REQUIRE(late.ended());
    CHECK(late.explain(Errc::cancelled, "aborted").code == Errc::timed_out);
}

TEST_CASE("operations are described by what matters in them", "[collectives]") {
    CHECK(describe({.operation = "barrier"}) == "barrier");
    CHECK(describe({.operation = "broadcast", .count = 3, .type = DType::i64, .root = 2}) ==
          "broadcast of 3 i64 (root 2)");
    CHECK(describe({.operation = "allreduce", .count = 5, .reduce = 4, .format = 5}) ==
          "allreduce of 5 f32 (average, int8)");
    CHECK(describe(
              {.operation = "allreduce", .count = 5, .reduce = 4, .format = 5, .on_trial = true}) ==
          "allreduce of 5 f32 (average, int8, on trial)");
    CHECK(
        describe(
            {.operation = "send", .count = 1, .type = DType::u8, .root = 1, .collective = false}) ==
        "send of 1 u8 (rank 1)");
}

TEST_CASE("what nobody reads holds up no thread that watches", "[collectives]") {
    const auto pipe = make_pipe();
    REQUIRE(pipe);
    const int writes = pipe->write.get();
    const std::string rest(4'096, 'x');
    ::fcntl(writes, F_SETFL, O_NONBLOCK);
    while (::write(writes, rest.data(), rest.size()) > 0) continue;
    ::fcntl(writes, F_SETFL, 0);
    const Fd errors(::dup(STDERR_FILENO));
    ::dup2(writes, STDERR_FILENO);
    auto told = std::async(std::launch::async, [] {
        const std::string line = "rank 1 has not come";
        tell_user({&line, 1});
    });
    const auto state = told.wait_for(milliseconds(20'000));
    ::dup2(errors.get(), STDERR_FILENO);
    std::array<char, 65'536> read{};
    if (state != std::future_status::ready)  // it ends with the test
        while (told.wait_for(milliseconds(0)) != std::future_status::ready)
            CHECK(::read(pipe->read.get(), read.data(), read.size()) > 0);
    CHECK(state == std::future_status::ready);
}
