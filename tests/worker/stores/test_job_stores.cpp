// The two kinds of JobStore, which must not differ.

#include "rendezvous/exchange/hub.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/msgpack.h"
#include "tests/support/catch.h"
#include "worker/stores/local_store.h"
#include "worker/stores/relayed_store.h"

#include <memory>

namespace dtrun {

using namespace stores;
namespace {

/// A RelayedStore whose requests arrive at a hub at once, and whose replies wait for pass().
class Relayed final : private Outbox {
public:
    Relayed()
        : store(io.get_executor(),
                [this](FrameType type, std::string_view payload) {
                    REQUIRE(hub.from_peer(1, {type, payload}, Clock::now()).has_value());
                }),
          hub(static_cast<Outbox&>(*this), HubOptions{}) {
        hub.add_peer(1, PeerKind::rank, kNoRank);
        begin(1);
    }
    void begin(std::uint64_t generation) {
        hub.begin(generation, 1);
        store.begin(generation);
    }
    void pass() {
        io.restart();
        io.poll();
        while (!replies.empty()) {
            const Bytes reply = std::move(replies.front());
            replies.erase(replies.begin());
            REQUIRE(store.on_reply(reply).has_value());
        }
    }
    asio::io_context io;
    std::vector<Bytes> replies;
    RelayedStore store;
    Hub hub;

private:
    void to_peer(PeerId, FrameType type, std::string_view payload) override {
        if (type == FrameType::reply) replies.emplace_back(payload);
    }
    void to_root(FrameType, std::string_view) override {}
};

StoreRequest request(Op op, std::vector<std::string_view> keys,
                     std::vector<std::string_view> values = {}) {
    StoreRequest made;
    made.op = op;
    made.keys = std::move(keys);
    made.values = std::move(values);
    made.timeout_ms = kForeverMs;
    return made;
}

/// Where the answer of a request goes.
struct Slot {
    std::optional<StoreReply> reply;
    JobStore::Answer take() {
        return [this](const StoreReply& got) { reply = got; };
    }
    std::string bytes() const {
        REQUIRE(reply.has_value());
        PackReader in(reply->results);
        REQUIRE(in.array() >= 1);
        return std::string(in.bytes());
    }
};

/// The same on either kind of store; `pass` lets replies arrive.
void use(JobStore& store, const std::function<void()>& pass) {
    Slot waited, got, added, swapped, listed, lost;
    PendingQueries queries(store);
    queries.ask(request(Op::wait, {"a", "b"}), waited.take());
    PendingQuery never = store.ask(request(Op::wait, {"never"}), lost.take());
    queries.ask(request(Op::set, {"a"}, {"1"}), [](const StoreReply&) {});
    pass();
    CHECK_FALSE(waited.reply.has_value());
    queries.ask(request(Op::multi_set, {"b", "c"}, {"2", "3"}), [](const StoreReply&) {});
    queries.ask(request(Op::get, {"c"}), got.take());
    StoreRequest add = request(Op::add, {"a"});
    add.delta = 41;
    queries.ask(add, added.take());
    StoreRequest swap = request(Op::compare_set, {"b"}, {"two"});
    swap.expected = "2";
    queries.ask(swap, swapped.take());
    StoreRequest list = request(Op::list, {""});
    list.number = 2;
    queries.ask(list, listed.take());
    pass();
    REQUIRE(waited.reply.has_value());
    CHECK(waited.reply->status == Status::ok);
    CHECK(got.bytes() == "3");
    PackReader sum(added.reply->results);
    CHECK(sum.array() == 1);
    CHECK(sum.integer() == 42);
    PackReader was(swapped.reply->results);
    CHECK(was.array() == 2);
    CHECK(was.boolean());
    CHECK(was.bytes() == "two");
    PackReader names(listed.reply->results);
    CHECK(names.array() == 2);
    CHECK(names.array() == 2);
    never.forget();
    never.forget();
    queries.ask(request(Op::set, {"never"}, {"x"}), [](const StoreReply&) {});
    pass();
    CHECK_FALSE(lost.reply.has_value());
    CHECK(queries.size() == 0);
}

}  // namespace

TEST_CASE("a store in this process does what it is asked, in order", "[stores]") {
    asio::io_context io;
    LocalStore store(io.get_executor());
    use(store, [&io] { io.restart(), io.poll(); });
    CHECK(store.store().waiting() == 0);
}

TEST_CASE("a store at the root of the tree does the same", "[stores]") {
    Relayed relayed;
    use(relayed.store, [&relayed] { relayed.pass(); });
    CHECK(relayed.hub.store().waiting() == 0);
}

TEST_CASE("who is answered by a local store may ask again, and is answered after that call",
          "[stores]") {
    asio::io_context io;
    LocalStore store(io.get_executor());
    PendingQueries queries(store);
    std::string order;
    queries.ask(request(Op::wait, {"key"}), [&](const StoreReply&) {
        order += "w";
        queries.ask(request(Op::set, {"other"}, {""}), [&](const StoreReply&) { order += "n"; });
        order += "i";
    });
    queries.ask(request(Op::wait, {"other"}), [&](const StoreReply&) { order += "o"; });
    queries.ask(request(Op::set, {"key"}, {""}), [&](const StoreReply&) { order += "s"; });
    CHECK(order.empty());
    io.poll();
    CHECK(order == "wison");
}

TEST_CASE("who is forgotten while others are answered is not answered", "[stores]") {
    asio::io_context io;
    LocalStore store(io.get_executor());
    std::string order;
    PendingQuery second;
    PendingQueries queries(store);
    queries.ask(request(Op::wait, {"key"}), [&](const StoreReply&) {
        order += "1";
        second.forget();
    });
    second = store.ask(request(Op::wait, {"key"}), [&](const StoreReply&) { order += "2"; });
    queries.ask(request(Op::set, {"key"}, {""}), [&](const StoreReply&) { order += "s"; });
    io.poll();
    CHECK(order == "1s");
}

TEST_CASE("a store forgets what is asked when the query goes", "[stores]") {
    asio::io_context io;
    LocalStore store(io.get_executor());
    int answered = 0;
    const auto count = [&answered](const StoreReply&) { ++answered; };
    {
        PendingQueries queries(store);
        queries.ask(request(Op::wait, {"key"}), count);
        PendingQuery query = store.ask(request(Op::wait, {"key"}), count);
        query = store.ask(request(Op::pop, {"queue"}), count);
        const PendingQuery moved = std::move(query);
        CHECK(store.store().waiting() == 2);
    }
    CHECK(store.store().waiting() == 0);
    { const PendingQuery soon = store.ask(request(Op::get, {"key"}), count); }
    io.poll();
    CHECK(answered == 0);
}

TEST_CASE("a local store's timeouts pass", "[stores]") {
    asio::io_context io;
    LocalStore store(io.get_executor());
    Slot late, later;
    PendingQueries queries(store);
    StoreRequest get = request(Op::get, {"key"});
    get.timeout_ms = 60;
    queries.ask(get, later.take());
    get.timeout_ms = 20;
    queries.ask(get, late.take());
    io.run_for(std::chrono::seconds(5));
    REQUIRE(late.reply.has_value());
    CHECK(late.reply->status == Status::timed_out);
    REQUIRE(later.reply.has_value());
}

TEST_CASE("more changes than one client may have under way take several clients", "[stores]") {
    Relayed relayed;
    int answered = 0;
    PendingQueries queries(relayed.store);
    for (int i = 0; i < 200; ++i) {
        const std::string key = "key" + std::to_string(i);
        queries.ask(request(Op::set, {key}, {"x"}), [&answered](const StoreReply& reply) {
            answered += reply.status == Status::ok;
        });
    }
    relayed.pass();
    CHECK(answered == 200);
    CHECK(relayed.hub.store().size() == 200);
}

TEST_CASE("a request that no frame holds is refused, and not sent", "[stores]") {
    Relayed relayed;
    const std::string large(FrameHeader::kPayloadBytesMax, 'v');
    Slot refused, others;
    PendingQueries queries(relayed.store);
    queries.ask(request(Op::push, {"dtrun/mail/1"}, {large}), refused.take());
    CHECK_FALSE(refused.reply.has_value());
    relayed.pass();
    REQUIRE(refused.reply.has_value());
    CHECK(refused.reply->status == Status::refused);
    CHECK(relayed.hub.store().size() == 0);
    queries.ask(request(Op::set, {"a"}, {"1"}), others.take());
    relayed.pass();
    CHECK(others.reply->status == Status::ok);
}

TEST_CASE("nobody is answered from a generation that is over", "[stores]") {
    Relayed relayed;
    Slot old, fresh;
    PendingQueries queries(relayed.store);
    queries.ask(request(Op::set, {"key"}, {"old"}), old.take());
    queries.ask(request(Op::wait, {"other"}), old.take());
    relayed.begin(2);
    relayed.pass();
    CHECK_FALSE(old.reply.has_value());
    StoreRequest get = request(Op::get, {"key"});
    get.timeout_ms = 0;
    queries.ask(get, fresh.take());
    relayed.pass();
    REQUIRE(fresh.reply.has_value());
    CHECK(fresh.reply->status == Status::not_found);
    CHECK(relayed.hub.store().waiting() == 0);
}

}  // namespace dtrun
