#include "tests/support/catch.h"
#include "tests/worker_client/client_support.h"
#include "tests/worker_client/fake_server.h"

#include <dtrun/asio.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace dtrun::testing {
namespace {

/// Waits for what many others are going to set, and adds up.
asio::awaitable<void> sum_up(AsioWorker& store, int count, std::int64_t& sum) {
    for (int i = 0; i < count; ++i) {
        const std::string key = std::to_string(i);
        Submission get{DTRUN_OP_GET};
        get.keys.push_back(key);
        const Answer answer = co_await store.ask(get, asio::use_awaitable);
        if (answer) sum += std::stoll(answer.value.value());
    }
}

asio::awaitable<void> set_all(AsioWorker& store, int count) {
    for (int i = count - 1; i >= 0; --i) {
        const std::string text = std::to_string(i);
        Submission set{DTRUN_OP_SET};
        set.keys.push_back(text);
        set.values.push_back(text);
        co_await store.ask(set, asio::use_awaitable);
    }
}

}  // namespace

TEST_CASE("coroutines of one thread wait for each other through the store", "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    asio::io_context context;
    AsioWorker store(context.get_executor(), worker);
    std::int64_t sum = 0;
    for (int i = 0; i < 10; ++i) asio::co_spawn(context, sum_up(store, 50, sum), asio::detached);
    asio::co_spawn(context, set_all(store, 50), asio::detached);
    context.run();
    CHECK(sum == 10 * 49 * 50 / 2);
}

TEST_CASE("an operation of Asio's may be started after its request has gone", "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    asio::io_context context;
    AsioWorker store(context.get_executor(), worker);
    bool is_set = false;
    asio::co_spawn(context, store.ask({DTRUN_OP_SET, {"key"}, {"value"}}, asio::use_awaitable),
                   [&](const std::exception_ptr&, const Answer& answer) { is_set = bool(answer); });
    context.run();
    CHECK(is_set);
    CHECK(worker.get("key") == "value");
}

TEST_CASE("an operation of Asio's that is cancelled cancels its request", "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    asio::io_context context;
    std::vector<Event> events;
    AsioWorker store(context.get_executor(), worker,
                     [&](const Event& event) { events.push_back(event); });
    asio::cancellation_signal stop;
    int code = DTRUN_OK;
    const auto answered = [&](const Answer& answer) {
        code = answer ? DTRUN_OK : answer.error->code().value();
    };
    store.ask({DTRUN_OP_GET, {"never"}}, asio::bind_cancellation_slot(stop.slot(), answered));
    context.poll();
    CHECK(code == DTRUN_OK);
    stop.emit(asio::cancellation_type::terminal);
    context.run();
    CHECK(code == DTRUN_CANCELLED);
    store.ask({DTRUN_OP_GET}, answered);  // without a key
    context.restart();
    context.run();
    CHECK(code == DTRUN_INVALID);
}

TEST_CASE("handlers of what is under way end with their executor, before the worker",
          "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    const auto kept = std::make_shared<int>(1);
    asio::cancellation_signal stop;
    {
        asio::io_context context;
        AsioWorker store(context.get_executor(), worker);
        std::int64_t sum = 0;
        asio::co_spawn(context, sum_up(store, 50, sum), asio::detached);
        store.ask({DTRUN_OP_GET, {"never"}},
                  asio::bind_cancellation_slot(stop.slot(), [kept](const Answer&) {}));
        context.poll();
        CHECK(kept.use_count() == 2);
    }
    CHECK(kept.use_count() == 1);
    stop.emit(asio::cancellation_type::terminal);
    worker.set("never", "value");
    while (worker.poll(std::chrono::seconds(1)) == 0) {
    }
}

TEST_CASE("an executor's run() returns when the worker is finalized", "[client][submit]") {
    const FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    asio::io_context context;
    AsioWorker store(context.get_executor(), worker);
    int code = DTRUN_OK;
    store.ask({DTRUN_OP_GET, {"never"}},
              [&](const Answer& answer) { code = answer.error->code().value(); });
    asio::post(context, [&] { worker.finalize(); });
    context.run();
    CHECK(code == DTRUN_CLOSED);
}

TEST_CASE("what a program's function for events throws ends run(), and not what is under way",
          "[client][submit][event]") {
    FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    asio::io_context context;
    AsioWorker store(context.get_executor(), worker,
                     [](const Event& event) { throw std::runtime_error(event.why); });
    bool is_there = false;
    store.ask({DTRUN_OP_GET, {"key"}}, [&](const Answer& answer) { is_there = bool(answer); });
    agent.announce(1, 2, 500, "a host has come");
    CHECK_THROWS_WITH(context.run(), "a host has come");
    worker.set("key", "value");
    context.run();
    CHECK(is_there);
}

TEST_CASE("an executor hears of events, and of an agent that goes", "[client][submit][event]") {
    FakeServer agent = FakeServer::agent(1);
    Worker worker = rank_of_agent(agent.address(), 0);
    asio::io_context context;
    std::vector<Event> events;
    AsioWorker store(context.get_executor(), worker, [&](const Event& event) {
        events.push_back(event);
        agent.drop_connections();
    });
    int code = DTRUN_OK;
    store.ask({DTRUN_OP_GET, {"never"}},
              [&](const Answer& answer) { code = answer.error->code().value(); });
    agent.announce(1, 2, 500, "a host has come");
    context.run();
    REQUIRE(events.size() == 1);
    CHECK(events.front().why == "a host has come");
    CHECK(code == DTRUN_CLOSED);
}

}  // namespace dtrun::testing
