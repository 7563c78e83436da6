#include "tests/worker_client/requests_support.h"

#include <poll.h>
#include <atomic>
#include <set>
#include <thread>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

bool is_ready(int fd, int timeout_ms = 0) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
}

dtrun_code code_of(const Outcome<Requests::Completion>& ended) {
    if (!ended) return ended.error().code;
    return ended->results ? DTRUN_OK : ended->results.error().code;
}

}  // namespace

TEST_CASE("requests that were submitted end in the order of their answers, each once",
          "[client][submit]") {
    Asked asked;
    const std::uint64_t first = asked.submit(Op::get);
    const std::uint64_t second = asked.submit(Op::set);
    const RequestHeader get = asked.next_request();
    asked.answer(asked.next_request(), Status::ok);
    CHECK(asked.complete()->number == second);
    CHECK(code_of(asked.complete(now())) == DTRUN_TIMED_OUT);
    asked.answer(get, Status::not_found);
    const auto ended = asked.complete();
    CHECK(ended->number == first);
    CHECK(ended->results.error().code == DTRUN_NOT_FOUND);
    CHECK(asked.unanswered().empty());
    CHECK(code_of(asked.complete(now())) == DTRUN_TIMED_OUT);
}

TEST_CASE("changes that were submitted go 64 at a time and in their order, and others beside them",
          "[client][submit]") {
    constexpr std::uint64_t kCount = 1'000;
    Asked asked;
    for (std::uint64_t i = 0; i < kCount; ++i) asked.submit(Op::set);
    asked.submit(Op::get);
    std::thread sets([&] { CHECK(asked.set(1).has_value()); });  // behind all others
    std::vector<RequestHeader> sent;
    for (std::uint64_t i = 0; i < kChangesMax; ++i) sent.push_back(asked.next_request());
    CHECK(asked.next_request().op == Op::get);
    CHECK(asked.next_request(now() + 20ms).id == 0);
    for (std::uint64_t number = 1; number <= kCount; ++number) {
        CHECK(sent[number - 1].op == Op::set);
        asked.answer(sent[number - 1], Status::ok);
        CHECK(asked.complete()->number == number);
        if (sent.size() <= kCount) sent.push_back(asked.next_request());
    }
    asked.answer(sent.back(), Status::ok);
    sets.join();
}

TEST_CASE("what the other side does not take is kept, and goes when it takes it",
          "[client][submit]") {
    constexpr std::uint64_t kCount = 20'000;
    const bool polls = GENERATE(true, false);
    CAPTURE(polls);
    Asked asked;
    const int fd = polls ? asked.fd() : -1;
    std::atomic<std::uint64_t> completed{0};
    std::thread completes;
    const auto complete_all = [&] {
        while (completed < kCount) {
            if (polls && !is_ready(fd, 10'000)) return;
            if (asked.complete(polls ? now() : now() + 10s)) ++completed;
        }
    };
    // One waits already when the others are submitted, and must hear that something is left.
    if (!polls) completes = std::thread(complete_all);
    const Moment begun = now();
    for (std::uint64_t i = 0; i < kCount; ++i) asked.submit(Op::get);
    CHECK(now() - begun < 5s);  // nobody reads
    if (polls) completes = std::thread(complete_all);
    for (std::uint64_t i = 1; i <= kCount; ++i) {
        const RequestHeader request = asked.next_request();
        REQUIRE(request.id == i);
        asked.answer(request, Status::ok);
    }
    completes.join();
    CHECK(completed == kCount);
    if (polls) CHECK_FALSE(is_ready(fd));
}

TEST_CASE("what is too large for now goes while a thread reads that cannot be woken",
          "[client][submit]") {
    Asked asked;
    std::thread waits([&] { CHECK(asked.get({now() + 20s, {}})); });
    const RequestHeader get = asked.next_request();
    std::this_thread::sleep_for(20ms);  // it reads by now, from before the first submission
    std::thread submits([&] {
        const std::uint64_t number = asked.submit_set(4u << 20);
        const auto ended = asked.complete();
        CHECK((ended && ended->number == number));
    });
    const RequestHeader set = asked.next_request();
    CHECK(set.op == Op::set);
    asked.answer(set, Status::ok);
    submits.join();
    asked.answer(get, Status::ok);
    waits.join();
}

TEST_CASE("a request that others follow waits for them, or for who completes", "[client][submit]") {
    Asked asked;
    const int fd = asked.fd();
    asked.submit(Op::get, Moment::max(), true);
    CHECK(asked.next_request(now() + 20ms).id == 0);
    CHECK(is_ready(fd));
    CHECK(code_of(asked.complete(now())) == DTRUN_TIMED_OUT);
    CHECK(asked.next_request().id == 1);
    CHECK_FALSE(is_ready(fd));
    asked.submit(Op::get, Moment::max(), true);
    asked.submit(Op::get);
    CHECK(asked.next_request().id == 2);
    CHECK(asked.next_request().id == 3);
}

TEST_CASE("the descriptor tells of completions, and of times that are over", "[client][submit]") {
    Asked asked;
    const int fd = asked.fd();
    asked.submit(Op::get);
    CHECK_FALSE(is_ready(fd));
    asked.answer(asked.next_request(), Status::ok);
    CHECK(is_ready(fd, 5'000));
    CHECK(asked.complete(now()).has_value());
    CHECK_FALSE(is_ready(fd));
    asked.submit(Op::get, now() + 50ms);
    CHECK_FALSE(is_ready(fd));
    CHECK(is_ready(fd, 5'000));
    const auto ended = asked.complete(now());
    REQUIRE(ended);
    CHECK(ended->results.error().text == "no answer in time");
    CHECK_FALSE(is_ready(fd));
}

TEST_CASE("the descriptor forgets the time of a request that has ended before",
          "[client][submit]") {
    Asked asked;
    const int fd = asked.fd();
    asked.submit(Op::get, now() + 50ms);
    asked.answer(asked.next_request(), Status::ok);
    CHECK(code_of(asked.complete()) == DTRUN_OK);
    is_ready(fd, 100);  // when the time is over, unless it was before
    CHECK(code_of(asked.complete(now())) == DTRUN_TIMED_OUT);
    CHECK_FALSE(is_ready(fd));
}

TEST_CASE("a thread that completes already learns of a limit", "[client][submit]") {
    const bool cancels = GENERATE(true, false);
    CAPTURE(cancels);
    Asked asked;
    Outcome<Requests::Completion> ended = failure(DTRUN_INTERNAL, "none");
    std::thread completes([&] { ended = asked.complete(); });
    std::this_thread::sleep_for(20ms);  // it waits by now, without a limit
    const Moment begun = now();
    if (cancels)
        asked.cancel(asked.submit(Op::set));
    else
        asked.submit(Op::get, now() + 50ms);
    completes.join();
    CHECK(now() - begun < 5s);
    REQUIRE(ended);
    CHECK_FALSE(ended->results);
}

TEST_CASE("a request that is cancelled ends once, as not done or as the store says",
          "[client][submit]") {
    Asked asked;
    CHECK_FALSE(asked.cancel(1));
    const std::uint64_t get = asked.submit(Op::get);
    const RequestHeader asks = asked.next_request();
    CHECK(asked.cancel(get));
    CHECK(code_of(asked.complete()) == DTRUN_CANCELLED);
    CHECK(asked.next_request().op == Op::cancel);
    asked.answer(asks, Status::ok);  // too late
    CHECK_FALSE(asked.cancel(get));

    for (const Status status : {Status::ok, Status::cancelled}) {
        const std::uint64_t pop = asked.submit(Op::pop);
        const RequestHeader pops = asked.next_request();
        CHECK(asked.cancel(pop));
        CHECK(asked.cancel(pop));
        CHECK(asked.next_request().op == Op::cancel);
        asked.answer(pops, status);
        const auto ended = asked.complete();
        CHECK(ended->number == pop);
        CHECK(code_of(ended) == (status == Status::ok ? DTRUN_OK : DTRUN_CANCELLED));
    }
    CHECK(code_of(asked.complete(now() + 20ms)) == DTRUN_TIMED_OUT);
}

TEST_CASE("a change that waits for its turn is cancelled without having been sent",
          "[client][submit]") {
    Asked asked;
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i <= kChangesMax; ++i) last = asked.submit(Op::set);
    std::thread cancels([&] {
        std::this_thread::sleep_for(20ms);  // the thread that completes waits by now
        asked.cancel(last);
    });
    CHECK(asked.complete()->number == last);
    cancels.join();
    for (std::uint64_t i = 1; i <= kChangesMax; ++i) CHECK(asked.next_request().id == i);
    CHECK(asked.next_request(now() + 20ms).id == 0);
}

TEST_CASE("a change that nobody answers may have been done, whoever waits for it",
          "[client][submit]") {
    Asked asked;
    const std::uint64_t cancelled = asked.submit(Op::set);
    asked.submit(Op::set, now() + 20ms);
    CHECK(asked.cancel(cancelled));
    CHECK(asked.complete()->results.error().text == "no answer in time; it may have been done");
    const auto ended = asked.complete();
    CHECK(ended->number == cancelled);
    CHECK(ended->results.error().text == "cancelled, and no answer; it may have been done");
    asked.submit(Op::set);
    asked.submit(Op::get);
    asked.end();
    const auto change = asked.complete();
    CHECK(change->results.error().text == "the store has gone; it may have been done");
    CHECK(asked.complete()->results.error().text == "the store has gone");
    CHECK(code_of(asked.complete()) == DTRUN_CLOSED);
}

TEST_CASE("threads that wait in calls and threads that complete read for each other",
          "[client][submit]") {
    Asked asked;
    std::atomic<int> answered{0};
    std::thread waits([&] { answered += asked.get({}) ? 1 : 0; });
    const RequestHeader get = asked.next_request();
    std::set<std::uint64_t> numbers;
    std::thread completes([&] {
        for (int i = 0; i < 100; ++i) numbers.insert(asked.complete().value().number);
    });
    for (int i = 0; i < 100; ++i) {
        asked.submit(i % 2 == 0 ? Op::set : Op::pop);
        asked.answer(asked.next_request(), Status::ok);
    }
    completes.join();
    CHECK(numbers.size() == 100);
    asked.answer(get, Status::ok);
    waits.join();
    CHECK(answered == 1);
}

}  // namespace dtrun::embedded
