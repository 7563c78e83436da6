#include "tests/worker_client/requests_support.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

}  // namespace

TEST_CASE("requests are numbered as they are sent, and kept until their answers",
          "[client][store]") {
    Asked asked;
    std::atomic<int> answered{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] { answered += asked.set(1).has_value() ? 1 : 0; });
    const RequestHeader first = asked.next_request();
    const RequestHeader second = asked.next_request();
    CHECK(first.client == kClient);
    CHECK(first.id == 1);
    CHECK(second.id == 2);
    CHECK(second.behind == 1);
    CHECK(asked.unanswered().size() == 2);
    asked.answer(Asked::answer_to(2));
    while (answered == 0) std::this_thread::yield();
    CHECK(asked.unanswered().size() == 1);
    asked.answer(Asked::answer_to(1));
    for (std::thread& thread : threads) thread.join();
    CHECK(answered == 2);
    CHECK(asked.unanswered().empty());
}

TEST_CASE("a request that nobody waits for any more is cancelled", "[client][store]") {
    Asked asked;
    const auto result = asked.get({now() + 10ms, {}});
    CHECK(result.error().code == DTRUN_TIMED_OUT);
    CHECK(asked.next_request().op == Op::get);
    CHECK(asked.next_request().op == Op::cancel);
    CHECK(asked.unanswered().empty());
}

TEST_CASE("pops that wait take no turns from changes, and are numbered apart", "[client][store]") {
    Asked asked;
    std::atomic<int> popped{0};
    std::vector<std::thread> threads;
    std::vector<RequestHeader> pops;
    for (std::uint64_t i = 0; i < kChangesMax; ++i)
        threads.emplace_back([&] { popped += asked.pop().has_value() ? 1 : 0; });
    for (std::uint64_t i = 0; i < kChangesMax; ++i) pops.push_back(asked.next_request());
    std::thread sets([&] { CHECK(asked.set(1).has_value()); });
    const RequestHeader set = asked.next_request();
    CHECK(set.op == Op::set);
    CHECK(set.client == kClient);
    asked.answer(set, Status::ok);
    sets.join();
    CHECK(asked.unanswered().size() == kChangesMax);
    std::set<std::uint64_t> clients;
    for (const RequestHeader& pop : pops) {
        clients.insert(pop.client);
        asked.answer(pop, Status::ok);
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(popped == kChangesMax);
    CHECK(clients.size() == kChangesMax);
    CHECK_FALSE(clients.contains(kClient));
}

TEST_CASE("the next pop says that the answer of the one before has come", "[client][store]") {
    Asked asked;
    RequestHeader before;
    for (int i = 0; i < 2; ++i) {
        std::thread pops([&] { CHECK(asked.pop().has_value()); });
        const RequestHeader pop = asked.next_request();
        if (i == 1) {
            CHECK(pop.client == before.client);
            CHECK(pop.id - pop.behind > before.id);
        }
        before = pop;
        asked.answer(pop, Status::ok);
        pops.join();
    }
}

TEST_CASE("who is interrupted hears whether a change was done", "[client][store]") {
    struct Row {
        bool is_pop;
        Status status;
        dtrun_code code;
    };
    const Row rows[] = {{true, Status::ok, DTRUN_OK},
                        {true, Status::cancelled, DTRUN_CANCELLED},
                        {false, Status::ok, DTRUN_OK},
                        {false, Status::wrong_type, DTRUN_WRONG_TYPE}};
    for (const Row& row : rows) {
        Asked asked;
        Outcome<Bytes> result;
        std::thread asks([&] {
            const WaitContext interrupted{Moment::max(), [] { return true; }};
            result = row.is_pop ? asked.pop(interrupted) : asked.set(1, interrupted);
        });
        const RequestHeader request = asked.next_request();
        if (row.is_pop) {
            const RequestHeader cancel = asked.next_request();
            CHECK(cancel.op == Op::cancel);
            CHECK(cancel.client == request.client);
        } else {
            std::this_thread::sleep_for(250ms);  // it is asked whether it gives up
        }
        asked.answer(request, row.status);
        asks.join();
        CHECK((result ? DTRUN_OK : result.error().code) == row.code);
    }
}

TEST_CASE("who cannot hear whether a change was done is told that", "[client][store]") {
    Asked asked;
    CHECK(asked.set(1, {now() + 10ms, {}}).error().text ==
          "no answer in time; it may have been done");
    CHECK(asked.next_request().op == Op::set);
    Outcome<Bytes> popped;
    std::thread pops([&] { popped = asked.pop({Moment::max(), [] { return true; }}); });
    CHECK(asked.next_request().op == Op::pop);
    CHECK(asked.next_request().op == Op::cancel);
    CHECK(asked.unanswered().size() == 2);  // both are sent again over another connection
    asked.end();
    pops.join();
    CHECK(popped.error().code == DTRUN_CLOSED);
    CHECK(popped.error().text == "the store has gone; it may have been done");
    // Another connection says again that it was given up, or it would take what is pushed.
    REQUIRE(asked.unanswered().size() == 1);
    CHECK(decode_request(payload_of(asked.unanswered().front()))->header.op == Op::cancel);
    CHECK(asked.set(1).error().text == "the store has gone");
}

TEST_CASE("a change that waits for its turn is sent at the first answer", "[client][store]") {
    Asked asked;
    std::atomic<std::uint64_t> answered{0};
    std::vector<std::thread> threads;
    const auto set = [&](std::size_t value_bytes) {
        threads.emplace_back(
            [&asked, &answered, value_bytes] { answered += asked.set(value_bytes) ? 1 : 0; });
    };
    set(4u << 20);  // the store reads nothing yet: its sender keeps the others from sending
    while (asked.unanswered().empty()) std::this_thread::yield();
    for (std::uint64_t i = 1; i <= kChangesMax; ++i) set(1);
    std::this_thread::sleep_for(200ms);  // one of them has found no turn, waits for it, and reads
    Bytes answers;
    for (std::uint64_t id = 1; id <= kChangesMax; ++id) {
        CHECK(asked.next_request().id == id);
        answers += Asked::answer_to(id);
    }
    CHECK(asked.next_request(now() + 50ms).id == 0);
    std::this_thread::sleep_for(50ms);  // all that have been sent wait
    asked.answer(answers);
    CHECK(asked.next_request().id == kChangesMax + 1);
    asked.answer(Asked::answer_to(kChangesMax + 1));
    for (std::thread& thread : threads) thread.join();
    CHECK(answered == kChangesMax + 1);
}

}  // namespace dtrun::embedded
