// The parts of a session that stand alone; test_tcp_store_session.cpp has them together.

#include "rendezvous/wire/msgpack.h"
#include "tests/support/catch.h"
#include "tests/worker/stores/answers.h"
#include "tests/worker/stores/tcp_store_bytes.h"
#include "worker/stores/input_buffer.h"
#include "worker/stores/session_failure.h"
#include "worker/stores/tcp_store_input.h"
#include "worker/stores/unconfirmed_requests.h"

#include <algorithm>
#include <string>

namespace dtrun {

using namespace stores;
namespace {

/// \return whether all of it had room at once
template <class Input>
bool put(Input& input, std::string_view bytes) {
    const auto room = input.room();
    const std::size_t taken = std::min(bytes.size(), room.size());
    std::ranges::copy(bytes.substr(0, taken), room.begin());
    input.received(taken);
    return taken == bytes.size();
}

}  // namespace

TEST_CASE("an input buffer keeps the order of what is received and used in pieces", "[torch]") {
    InputBuffer buffer;
    std::string sent, used;
    for (std::size_t i = 0; i < 2'000; ++i) {
        const std::string piece(i % 97, static_cast<char>('a' + i % 26));
        REQUIRE(put(buffer, piece));
        sent += piece;
        const std::size_t taken = std::min(buffer.unused().size(), i % 89);
        used += buffer.unused().substr(0, taken);
        buffer.use(taken);
    }
    CHECK(used + std::string(buffer.unused()) == sent);
}

TEST_CASE("an input buffer gives its memory back after something large", "[torch]") {
    InputBuffer buffer;
    while (buffer.unused().size() < 1u << 20) put(buffer, std::string(buffer.room().size(), 'x'));
    CHECK(buffer.room().size() >= 1'024);
    buffer.use(buffer.unused().size());
    CHECK(buffer.room().size() == 2'048);
}

TEST_CASE("a request's fields can be read until it is consumed, wherever its bytes move",
          "[torch]") {
    TcpStoreInput input([] { return false; });
    const std::string before = torch::kValidate + torch::op(1, {"other", "value"});
    REQUIRE(put(input, before + torch::op(1, {"key", "value"})));
    REQUIRE(input.find() == true);
    input.consume();
    REQUIRE(input.find() == true);
    for (int i = 0; i < 100; ++i) REQUIRE(put(input, std::string(1'000, 'x')));
    CHECK(input.find() == true);
    CHECK(input.field(0) == "key");
    CHECK(input.field(1) == "value");
    CHECK(input.backlog_bytes() == 100'000);
}

TEST_CASE("unconfirmed requests are limited by number and by bytes", "[torch]") {
    Answers store;
    int was_full = 0;
    UnconfirmedRequests requests(store,
                                 [&](const StoreReply&, bool full) { was_full += full ? 1 : 0; });
    for (int i = 0; i < 47; ++i) requests.ask({}, 10);
    CHECK_FALSE(requests.is_full());
    requests.ask({}, 10);
    CHECK(requests.is_full());
    store.answer(20);
    CHECK_FALSE(requests.is_full());
    store.answer(3);
    CHECK(was_full == 1);
    requests.ask({}, 4u << 20);
    CHECK(requests.is_full());
    store.answer(49);
    CHECK_FALSE(requests.is_full());
    CHECK(was_full == 2);
}

TEST_CASE("nobody waits for confirmations when those who asked are gone", "[torch]") {
    Answers store;
    {
        UnconfirmedRequests requests(store, [](const StoreReply&, bool) {});
        requests.ask({}, 1);
        requests.ask({}, 1);
        CHECK(store.waiting.size() == 2);
    }
    CHECK(store.waiting.empty());
}

TEST_CASE("a session fails for the first reason", "[torch]") {
    SessionFailure failure;
    CHECK_FALSE(failure.is_over_after({Status::not_found, {}}));
    CHECK_FALSE(failure);
    CHECK(failure.is_over_after({Status::stale, {}}));
    failure.set({Errc::invalid_input, "later"});
    CHECK(failure.is_over_after({Status::ok, {}}));
    CHECK(failure.error()->code == Errc::closed);
}

}  // namespace dtrun
