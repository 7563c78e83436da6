#include "tests/worker_client/requests_support.h"

#include "rendezvous/wire/exchange_messages.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cstring>
#include <future>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

const WaitContext kInterrupted{Moment::max(), [] { return true; }};

/// A client with an agent, and the store of its machine, at which it asks: both are played by the test.
class TwoWays {
public:
    TwoWays() {
        static int count = 0;
        const std::string name =
            "@dtrun-test-store-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
        listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(listener_.get(), 8) == 0);
        Welcome welcome;
        welcome.store_socket = name;
        agent.direct_store().offer(welcome);
        for (int i = 0; i < DirectStore::kWorthIt; ++i)
            CHECK_FALSE(agent.ask_directly(Op::set).has_value());
        const auto asked = ask(Op::set);
        Fd accepted(::accept(listener_.get(), nullptr, nullptr));
        here_ = FrameSocket(PrivateFd([&accepted] { return accepted.release(); }));
        CHECK(next() == FrameType::hello);
        REQUIRE(here_.send(encode(Welcome{})));
        answer(next_request());
        REQUIRE(asked.wait_for(10s) == std::future_status::ready);
    }

    using Asking = std::shared_future<std::optional<Outcome<Bytes>>>;
    Asking ask(Op op, WaitContext context = {}) {
        return std::async(std::launch::async,
                          [this, op, context] { return agent.ask_directly(op, context); })
            .share();
    }
    /// Whether it goes past the agent, and gets its answer.
    bool goes_past(Op op) {
        const Asking asked = ask(op);
        if (asked.wait_for(200ms) == std::future_status::ready && !asked.get()) return false;
        answer(next_request());
        const auto& got = asked.get();
        return got && got->has_value();
    }

    RequestHeader next_request() {
        CHECK(next() == FrameType::request);
        return decode_request(payload_)->header;
    }
    void answer(const RequestHeader& request, Status status = Status::ok) {
        REQUIRE(here_.send(encode_reply({request.client, request.id, status}, "\x90")));
    }
    void end() { here_.shut_down(); }

    Asked agent;

private:
    FrameType next() {
        for (;;) {
            const auto frame = here_.next();
            if (frame && *frame) {
                payload_ = (*frame)->payload;
                return (*frame)->type;
            }
            if (here_.receive(now() + 10s) != FrameSocket::Got::bytes) return {};
        }
    }

    Fd listener_;
    FrameSocket here_;
    std::string payload_;
};

dtrun_code code_of(const TwoWays::Asking& asked) {
    const auto& got = asked.get();
    REQUIRE(got.has_value());
    return *got ? DTRUN_OK : got->error().code;
}

}  // namespace

TEST_CASE("a request goes past the agent while nothing is under way there",
          "[client][direct_store]") {
    TwoWays ways;
    CHECK(ways.goes_past(Op::set));
    CHECK(ways.goes_past(Op::get));
    const std::uint64_t number = ways.agent.submit(Op::set);
    const RequestHeader set = ways.agent.next_request();
    CHECK(set.client == kClient);
    CHECK_FALSE(ways.goes_past(Op::get));
    ways.agent.answer(set, Status::ok);
    CHECK(ways.agent.complete()->number == number);
    CHECK(ways.goes_past(Op::get));
    std::thread pops([&] { CHECK(ways.agent.pop().has_value()); });
    const RequestHeader pop = ways.agent.next_request();
    CHECK_FALSE(ways.goes_past(Op::get));
    ways.agent.answer(pop, Status::ok);
    pops.join();
    CHECK(ways.goes_past(Op::get));
}

TEST_CASE("behind a change of which nobody has heard nothing goes past the agent",
          "[client][direct_store]") {
    TwoWays ways;
    CHECK(ways.agent.set(1, {now() + 10ms, {}}).error().code == DTRUN_TIMED_OUT);
    CHECK_FALSE(ways.goes_past(Op::get));
}

TEST_CASE("two threads do not ask the store of their machine at once", "[client][direct_store]") {
    TwoWays ways;
    const auto first = ways.ask(Op::get);
    const RequestHeader request = ways.next_request();
    CHECK_FALSE(ways.agent.ask_directly(Op::get).has_value());
    ways.answer(request);
    CHECK(code_of(first) == DTRUN_OK);
}

TEST_CASE("who is interrupted hears from the store of its machine whether a change was done",
          "[client][direct_store]") {
    TwoWays ways;
    const auto set = ways.ask(Op::set, kInterrupted);
    const RequestHeader request = ways.next_request();
    std::this_thread::sleep_for(250ms);  // it is asked whether it gives up
    ways.answer(request);
    CHECK(code_of(set) == DTRUN_OK);
    CHECK(ways.goes_past(Op::get));

    const auto unanswered = ways.ask(Op::set, {now() + 10ms, {}});
    CHECK(code_of(unanswered) == DTRUN_TIMED_OUT);
    CHECK_THAT(unanswered.get()->error().text, Catch::Contains("it may have been done"));
    const auto next = ways.ask(Op::get);  // over the same connection, so that it is done after that
    ways.answer(ways.next_request());
    ways.answer(ways.next_request());
    CHECK(code_of(next) == DTRUN_OK);
}

TEST_CASE("a late answer is not taken for that of the next request", "[client][direct_store]") {
    TwoWays ways;
    const auto get = ways.ask(Op::get, {now() + 10ms, {}});
    CHECK(code_of(get) == DTRUN_TIMED_OUT);
    const auto next = ways.ask(Op::get);
    ways.answer(ways.next_request(), Status::not_found);
    ways.answer(ways.next_request());
    CHECK(code_of(next) == DTRUN_OK);
}

TEST_CASE("when the store of a machine goes, reads ask the agent, and a change may have been done",
          "[client][direct_store]") {
    for (const Op op : {Op::get, Op::set}) {
        TwoWays ways;
        const auto asked = ways.ask(op);
        ways.next_request();
        ways.end();
        if (op == Op::get) {
            CHECK_FALSE(asked.get().has_value());
        } else {
            CHECK(code_of(asked) == DTRUN_CLOSED);
            CHECK_THAT(asked.get()->error().text, Catch::Contains("it may have been done"));
        }
        CHECK_FALSE(ways.agent.ask_directly(Op::get).has_value());
    }
}

TEST_CASE("a worker that is closed ends its thread at the store of its machine",
          "[client][direct_store]") {
    TwoWays ways;
    const auto get = ways.ask(Op::get);
    ways.next_request();
    ways.agent.direct_store().close();
    CHECK_FALSE(get.get().has_value());
}

}  // namespace dtrun::embedded
