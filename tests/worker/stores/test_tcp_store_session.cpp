#include "tests/support/catch.h"
#include "tests/worker/stores/tcp_store_bytes.h"
#include "worker/stores/local_store.h"
#include "worker/stores/tcp_store_session.h"

#include <deque>
#include <memory>
#include <set>

namespace dtrun {

using namespace stores;
namespace {

using namespace torch;

const std::string kStop(1, '\0');
const std::string kCanceled(1, '\1');
const std::string kReady(1, '\0');
const std::string kNotReady(1, '\1');

/// A store whose answers come when the test lets them, if it is to be late.
class TestStore final : public JobStore {
public:
    explicit TestStore(bool late = false) : late_(late), local_(context_.get_executor()) {}

    /// Answers what there is an answer for, unless that is to be late.
    void settle() {
        context_.restart();
        context_.poll();
    }
    /// \return whether there was one
    bool answer_one() {
        settle();
        if (replies_.empty()) return false;
        const auto [ticket, answer, reply] = std::move(replies_.front());
        replies_.pop_front();
        if (unanswered_.erase(ticket) > 0) answer(reply);
        return true;
    }
    void answer_all() {
        while (answer_one()) {
        }
    }

    const Store& store() const { return local_.store(); }
    std::size_t unanswered() const { return unanswered_.size(); }

    std::size_t asked = 0;

private:
    Ticket start(const StoreRequest& request, Answer answer) override {
        ++asked;
        const Ticket ticket = ++last_;
        unanswered_.insert(ticket);
        native_[ticket] = local_.ask(
            request, [this, ticket, answer = std::move(answer)](const StoreReply& reply) {
                if (late_)
                    replies_.emplace_back(ticket, answer, reply);
                else if (unanswered_.erase(ticket) > 0)
                    answer(reply);
            });
        return ticket;
    }
    void forget(Ticket ticket) override {
        unanswered_.erase(ticket);
        native_.erase(ticket);
    }

    bool late_;
    asio::io_context context_;
    LocalStore local_;
    Ticket last_ = 0;
    std::set<Ticket> unanswered_;
    std::map<Ticket, PendingQuery> native_;
    std::deque<std::tuple<Ticket, Answer, StoreReply>> replies_;
};

/// A client's connection, without one.
class Client {
public:
    explicit Client(TestStore& store, std::string greeting = kValidate) : store_(store) {
        TcpStoreSession::Hooks hooks;
        hooks.changed = [this] { collect(); };
        hooks.has_idle_sibling = [this] { return idle_sibling; };
        hooks.is_rank = [this](std::uint32_t number) { rank = number; };
        session_ = std::make_unique<TcpStoreSession>(store, std::move(hooks));
        send(greeting);
    }

    /// \param step  bytes that come at a time
    void send(std::string_view bytes, std::size_t step = std::string_view::npos) {
        while (!bytes.empty()) {
            if (!session_->wants_input()) {
                held_ += bytes;
                return;
            }
            const auto room = session_->room();
            const std::size_t taken = std::min({bytes.size(), room.size(), step});
            std::ranges::copy(bytes.substr(0, taken), room.begin());
            bytes.remove_prefix(taken);
            session_->received(taken);
            store_.settle();
            collect();
        }
    }

    /// What has come back since the last call.
    std::string take() {
        store_.answer_all();
        std::string all = std::exchange(received_, {});
        return all;
    }
    std::string ask(std::string_view bytes) {
        send(bytes);
        return take();
    }
    std::string failure() const { return session_->failure() ? session_->failure()->message : ""; }
    void hang_up() { session_.reset(); }
    TcpStoreSession& session() { return *session_; }

    bool idle_sibling = false;
    std::optional<std::uint32_t> rank;

private:
    void collect() {
        while (session_->has_output()) {
            received_ += session_->output();
            session_->sent(session_->output().size());
        }
        if (held_.empty() || !session_->wants_input()) return;
        const std::string held = std::exchange(held_, {});
        send(held);
    }

    TestStore& store_;
    std::unique_ptr<TcpStoreSession> session_;
    std::string received_;
    std::string held_;
};

const std::string kEverything =
    op(13) + number<std::uint32_t>(4711) + op(4, "init/", 1) + op(1, {"/k", "v"}) + op(3, {"/k"}) +
    op(3, {"/missing"}) + op(2, {"/k", "x", "y"}) + op(2, {"/k", "v", "w"}) +
    op(2, {"/c", "x", "y"}) + op(2, {"/c", "", "new"}) + op(2, {"/c", "", "newer"}) +
    op(1, {"/e", ""}) + op(2, {"/e", "", "full"}) + op(4, "/n", 5) + op(4, "/n", -7) +
    op(3, {"/n"}) + list(5, 2, {"/k", "/n"}) + list(5, 2, {"/k", "/missing"}) +
    list(6, 3, {"/k", "/n", "/k"}) + op(9, {"/a", "one"}) + op(9, {"/a", "two"}) + op(3, {"/a"}) +
    list(11, 2, {"/m1", "1", "/m2", "2"}) + list(10, 3, {"/m2", "/missing", "/m1"}) +
    list(10, 2, {"/m2", "/m1"}) + op(7) + op(8, {"/m1"}) + op(8, {"/m1"}) + op(12) +
    op(14, {"/q", "i1"}) + op(14, {"/q", "i2"}) + op(16, {"/q"}) + op(15, {"/q"}) + op(15, {"/q"}) +
    op(15, {"/q"}) + op(16, {"/q"}) + op(8, {"/m2"}) + op(8, {"/a"}) + op(8, {"/e"}) + op(17) +
    op(18, "/b", 1);

const std::string kEverythingBack =
    number<std::uint32_t>(4711) + number<std::int64_t>(1) + text("v") + text("") + text("v") +
    text("w") + text("x") + text("new") + text("new") + text("full") + number<std::int64_t>(5) +
    number<std::int64_t>(-2) + text("-2") + kReady + kNotReady + kStop + text("onetwo") +
    texts({"2", "", "1"}) + texts({"2", "1"}) + number<std::int64_t>(8) + number<std::int64_t>(1) +
    number<std::int64_t>(0) + kCanceled + number<std::int64_t>(2) + number<std::int64_t>(1) +
    text("i1") + number<std::int64_t>(1) + text("i2") + number<std::int64_t>(0) +
    number<std::int64_t>(0) + number<std::int64_t>(1) + number<std::int64_t>(1) +
    number<std::int64_t>(1) + number<std::int64_t>(4) + texts({"/c", "/k", "/n", "init/"}) + kStop;

TEST_CASE("every modern operation is answered, however the bytes are cut", "[torch]") {
    for (const bool late : {false, true}) {
        for (std::size_t step = 1; step <= kEverything.size(); step += step < 40 ? 1 : 97) {
            TestStore store(late);
            Client client(store);
            client.send(kEverything, step);
            CAPTURE(late, step, client.failure());
            CHECK(client.take() == kEverythingBack);
            CHECK(store.unanswered() == 0);
            CHECK(client.session().pid() == 4711);
        }
    }
}

TEST_CASE("the older dialects are answered alike", "[torch]") {
    const std::string set = op(0, {"/k", "v"}), cas = op(1, {"/k", "v", "w"}), get = op(2, {"/k"}),
                      add = op(3, "init/", 1), check = list(4, 1, {"/k"}),
                      wait = list(5, 1, {"/k"}), count = op(6);
    const std::string back =
        number<std::int64_t>(1) + text("w") + text("w") + kReady + kStop + number<std::int64_t>(2);
    SECTION("1.13 and 2.0") {
        TestStore store;
        Client client(store, "");
        client.idle_sibling = true;
        std::string got = client.ask(add + set + cas + get + check + wait);
        got += client.ask(count);  // not at once: that would end the wait
        CHECK(got == back);
        CHECK(client.ask(op(8, {"/k"})) == number<std::int64_t>(1));
        CHECK(client.ask(op(8, {"/k"})) == number<std::int64_t>(0));
    }
    SECTION("of 2023") {
        TestStore store;
        Client client(store, "");
        std::string got = client.ask(add + set + cas + get + check + wait);
        got += client.ask(count);  // not at once: that would end the wait
        CHECK(got == back);
        CHECK(client.ask(op(8, {"/k", "x"}) + op(2, {"/k"})) == text("wx"));
        CHECK(client.ask(op(7, {"/k"})) == number<std::int64_t>(1));
        CHECK(client.ask(list(10, 1, {"/m", "1"}) + list(9, 1, {"/m"})) == text("1"));
        client.send(list(5, 1, {"/never"}));
        CHECK(client.ask(op(11)) == kCanceled);
    }
    SECTION("with a number before every operation") {
        TestStore store;
        Client client(store, "");
        const std::string stream = kMagic + add + kMagic + set + kMagic + cas + kMagic + get +
                                   kMagic + check + kMagic + wait + kMagic + count;
        CHECK(client.ask(stream) == back);
        CHECK(client.ask(kMagic + op(7, {"/k"})) == number<std::int64_t>(1));
    }
}

TEST_CASE("what has no reply is under way together, but not without end", "[torch]") {
    TestStore store(true);
    Client client(store);
    std::string many;
    for (int i = 0; i < 1'000; ++i) many += op(1, {"/k" + std::to_string(i), "v"});
    client.send(many + op(3, {"/k999"}));
    CHECK(store.unanswered() > 10);
    CHECK(store.unanswered() < 64);
    CHECK_FALSE(client.session().wants_input());
    CHECK(client.take() == text("v"));
    CHECK(store.store().size() == 1'000);
}

TEST_CASE("a request behind a WAIT waits with it, except CANCEL_WAIT", "[torch]") {
    TestStore store;
    Client waiter(store), other(store);
    CHECK(waiter.ask(list(6, 2, {"/a", "/b"}) + op(4, "/n", 1)).empty());
    CHECK(other.ask(op(4, "/n", 0)) == number<std::int64_t>(0));
    REQUIRE(waiter.session().waiting());
    CHECK(waiter.session().waiting()->key == "/a");
    CHECK(waiter.session().waiting()->keys == 2);
    other.send(op(1, {"/b", ""}));
    CHECK(waiter.take().empty());
    other.send(op(1, {"/a", ""}));
    CHECK(waiter.take() == kStop + number<std::int64_t>(1));
    CHECK_FALSE(waiter.session().waiting());

    CHECK(waiter.ask(list(6, 1, {"/c"}) + op(12) + op(7)) == kCanceled + number<std::int64_t>(3));
    CHECK(store.store().waiting() == 0);
    other.send(op(1, {"/c", ""}));
    CHECK(waiter.take().empty());
}

TEST_CASE("a cancelled WAIT is not answered late", "[torch]") {
    TestStore store(true);
    Client client(store);
    client.send(op(1, {"/k", ""}) + list(6, 1, {"/k"}) + op(12));
    CHECK(client.take() == kCanceled);
    CHECK(client.ask(list(6, 1, {"/k"})) == kStop);
}

TEST_CASE("a client of 1.13 whose WAIT took too long goes on", "[torch]") {
    TestStore store;
    Client client(store, "");
    CHECK(client.ask(list(5, 1, {"/never"})).empty());
    CHECK(store.store().waiting() == 1);
    CHECK(client.ask(op(3, "/n", 1)) == number<std::int64_t>(1));
    CHECK(store.store().waiting() == 0);
    CHECK(client.ask(op(0, {"/never", ""}) + op(6)) == number<std::int64_t>(2));
}

TEST_CASE("who hangs up waits for nothing", "[torch]") {
    for (const std::string& request : {list(6, 1, {"/k"}), op(18, "/b", 2), list(6, 1, {"/q"})}) {
        TestStore store;
        Client client(store), other(store);
        client.send(request);
        CHECK(store.store().waiting() == 1);
        client.hang_up();
        CHECK(store.store().waiting() == 0);
        CHECK(store.unanswered() == 0);
        other.send(op(1, {"/k", ""}));
    }
}

TEST_CASE("compare_set of nothing finds the missing and the empty key", "[torch]") {
    for (const bool late : {false, true}) {
        TestStore store(late);
        Client client(store);
        CHECK(client.ask(op(2, {"/k", "", ""})) == text(""));
        CHECK(client.ask(op(2, {"/k", "", "full"})) == text("full"));
        CHECK(client.ask(op(2, {"/k", "", "other"})) == text("full"));
        CHECK(client.ask(op(2, {"/none", "x", "y"}) + op(7)) ==
              text("x") + number<std::int64_t>(1));
    }
}

TEST_CASE("the last one at a barrier lets all go, and deleting it begins anew", "[torch]") {
    TestStore store;
    Client a(store), b(store), c(store);
    CHECK(a.ask(op(18, "/b", 3)).empty());
    CHECK(a.session().waiting()->barrier);
    CHECK(b.ask(op(18, "/b", 3)).empty());
    CHECK(b.ask(op(12)) == kCanceled);
    CHECK(c.ask(op(18, "/b", 3)) == kStop);
    CHECK(a.take() == kStop);
    CHECK(b.take().empty());
    CHECK(b.ask(op(18, "/b", 3)) == kStop);
    CHECK(a.ask(op(7)) == number<std::int64_t>(1));
    CHECK(a.ask(op(17)) == number<std::int64_t>(1) + text("/b"));
    CHECK(a.ask(op(3, {"/b"})) == text("4"));
    CHECK(a.ask(op(8, {"/b"})) == number<std::int64_t>(1));
    CHECK(store.store().size() == 0);
    CHECK(a.ask(op(18, "/b", 2)).empty());
    CHECK(b.ask(op(18, "/b", 2)) == kStop);
    CHECK(a.take() == kStop);
}

TEST_CASE("a blocking pop that loses its item waits for the next", "[torch]") {
    TestStore store;
    Client loser(store), winner(store), pusher(store);
    loser.send(list(6, 1, {"/q"}));
    pusher.send(op(14, {"/q", "first"}));
    CHECK(loser.take() == kStop);
    CHECK(winner.ask(op(15, {"/q"})) == number<std::int64_t>(1) + text("first"));
    CHECK(loser.ask(op(15, {"/q"})).empty());
    CHECK(loser.session().waiting()->pop);
    CHECK(winner.ask(op(15, {"/q"})) == number<std::int64_t>(0));
    pusher.send(op(14, {"/q", "second"}));
    CHECK(loser.take() == number<std::int64_t>(1) + text("second"));
    // Only right after the WAIT, and for that key.
    pusher.send(op(14, {"/q", "third"}));
    CHECK(loser.ask(list(6, 1, {"/q"}) + op(15, {"/r"})) == kStop + number<std::int64_t>(0));
    CHECK(winner.ask(op(15, {"/q"})) == number<std::int64_t>(1) + text("third"));
    CHECK(loser.ask(op(15, {"/q"})) == number<std::int64_t>(0));
}

TEST_CASE("who hangs up while a pop is held takes nothing", "[torch]") {
    TestStore store;
    Client loser(store), other(store);
    other.send(op(14, {"/q", "1"}));
    CHECK(loser.ask(list(6, 1, {"/q"})) == kStop);
    other.ask(op(15, {"/q"}));
    loser.send(op(15, {"/q"}));
    CHECK(loser.session().wants_input());
    loser.hang_up();
    CHECK(other.ask(op(14, {"/q", "2"}) + op(15, {"/q"})) == number<std::int64_t>(1) + text("2"));
}

TEST_CASE("MULTI_GET gives everything, also what is missing or too much for one reply", "[torch]") {
    for (const bool late : {false, true}) {
        TestStore store(late);
        Client client(store);
        const std::string large(9u << 20, 'x');
        client.send(op(1, {"/a", large}) + op(1, {"/b", large}));
        CHECK((client.ask(list(10, 3, {"/b", "/none", "/a"})) == texts({large, "", large})));
        CHECK((client.ask(list(10, 2, {"/b", "/a"})) == texts({large, large})));
        CHECK(client.ask(list(10, 0, {}) + op(7)) == number<std::int64_t>(2));
    }
}

TEST_CASE("MULTI_SET is seen whole or not at all", "[torch]") {
    TestStore store;
    Client waiter(store), setter(store);
    waiter.send(list(6, 1, {"/a"}));
    setter.send(list(11, 2, {"/a", "1", "/b", "2"}).substr(0, 30));
    CHECK(store.store().size() == 0);
    CHECK(waiter.take().empty());
    setter.send(list(11, 2, {"/a", "1", "/b", "2"}).substr(30));
    CHECK(waiter.take() == kStop);
    CHECK(waiter.ask(list(5, 2, {"/a", "/b"})) == kReady);
}

TEST_CASE("a watched key's changes come, with what was and what is", "[torch]") {
    TestStore store;
    Client watcher(store, ""), other(store, "");
    CHECK(watcher.ask(op(7, {"/w"})) == std::string(1, '\3'));
    other.idle_sibling = true;
    other.send(op(0, {"/w", "1"}));
    CHECK(watcher.take() == std::string(1, '\1') + texts({"/w", "", "1"}));
    other.send(op(0, {"/w", "2"}));
    CHECK(watcher.take() == std::string(1, '\0') + texts({"/w", "1", "2"}));
    other.send(op(8, {"/w"}));
    CHECK(watcher.take() == std::string(1, '\2') + texts({"/w", "2", ""}));
    CHECK(watcher.ask(op(7, {"/v"})) == std::string(1, '\3'));
    other.send(op(0, {"/v", ""}));
    CHECK(watcher.take() == std::string(1, '\1') + texts({"/v", "", ""}));
    watcher.hang_up();
    CHECK(store.store().waiting() == 0);
}

TEST_CASE("a connection that appears later decides what operation 8 is", "[torch]") {
    TestStore store;
    Client client(store, "");
    CHECK(client.ask(op(0, {"/k", ""}) + op(8, {"/k"})).empty());
    CHECK(client.session().undecided());
    client.session().reconsider();
    CHECK(client.take().empty());
    client.idle_sibling = true;
    client.session().reconsider();
    CHECK(client.take() == number<std::int64_t>(1));
    CHECK_FALSE(client.session().undecided());
}

TEST_CASE("keys of others in the same store are not torch's", "[torch]") {
    TestStore store;
    StoreRequest request;
    request.op = Op::set;
    request.keys = {"torch"};
    request.values = {"x"};
    const auto pushed = store.ask(request, [](const StoreReply&) {});
    Client client(store);
    CHECK(client.ask(op(7) + op(17)) == number<std::int64_t>(0) + number<std::int64_t>(0));
    CHECK(client.ask(list(5, 1, {"torch"})) == kNotReady);
}

TEST_CASE("keys are counted and listed past one page", "[torch]") {
    TestStore store;
    Client client(store);
    std::string sets = op(11) + number<std::uint64_t>(100'001);
    std::string keys;
    for (int i = 0; i <= 100'000; ++i) {
        const std::string key = text("/" + std::to_string(100'000 + i));
        sets += key + text("");
        keys += key;
    }
    CHECK(client.ask(sets + op(7)) == number<std::int64_t>(100'001));
    CHECK((client.ask(op(17)) == number<std::int64_t>(100'001) + keys));
    CHECK(client.ask(op(7)) == number<std::int64_t>(100'001));
}

TEST_CASE("what the store refuses ends the connection with its reason", "[torch]") {
    TestStore store;
    const auto failure = [&store](const std::string& bytes) {
        Client client(store);
        client.send(bytes);
        client.take();
        CHECK_FALSE(client.session().wants_input());
        return client.failure();
    };
    CHECK(failure(op(1, {"/k", "text"}) + op(4, "/k", 1)) == "add to k, which is no number");
    CHECK(failure(op(14, {"/q", "1"}) + op(1, {"/q", "1"})) ==
          "a queue was used as a value, or a value as a queue");
    CHECK(failure(op(2, {"/q", "1", "2"})) == "compare_set of q, which is a queue");
    CHECK(failure(op(18, "/k", 2)) == "barrier k: the key has a value that is no number");
    CHECK(failure(op(4, "/n", 1) + op(4, "/n", 0x7fff'ffff'ffff'ffff)) ==
          "refused: the sum does not fit 64 bits");
    CHECK(failure(op(99)) == "unknown operation 99");
    Client client(store);
    CHECK(client.ask(op(3, {"/q"}) + op(16, {"/k"}) + op(15, {"/k"})) ==
          text("") + number<std::int64_t>(0) + number<std::int64_t>(0));
}

TEST_CASE("memory is taken for what has come, not for what is announced", "[torch]") {
    TestStore store;
    Client client(store);
    client.send(op(1, {"/k"}) + number<std::uint64_t>(15u << 20));
    CHECK(client.session().room().size() < 4'096);
    client.session().received(0);
    const std::string value(15u << 20, 'x');
    CHECK((client.ask(value + op(3, {"/k"})) == text(value)));
    CHECK(client.session().room().size() < 4'096);
}

TEST_CASE("nothing is done for a client that does not read", "[torch]") {
    TestStore store;
    Client client(store);
    client.session().set_writable(false);
    CHECK_FALSE(client.session().wants_input());
    client.session().set_writable(true);
    const auto room = client.session().room();
    const std::string gets = op(1, {"/k", std::string(1'000, 'x')}) + op(3, {"/k"});
    REQUIRE(room.size() > gets.size());
    std::ranges::copy(gets, room.begin());
    client.session().set_writable(false);
    client.session().received(gets.size());
    CHECK(store.asked == 0);
    client.session().set_writable(true);
    CHECK(store.asked == 2);
    CHECK(client.take() == text(std::string(1'000, 'x')));
}

TEST_CASE("a client says which rank it is, and for which ones it waits", "[torch]") {
    TestStore store;
    Client client(store);
    client.send(op(1, {"/mine/rank_7", ""}));
    CHECK_FALSE(client.rank);
    client.send(op(1, {"/default_pg/0//cpu//0/1", "address"}));
    CHECK(client.rank == 1u);
    client.send(list(6, 2, {"/default_pg/0//cpu//0/1", "/default_pg/0//cpu//0/2"}));
    CHECK(client.session().waiting()->for_rank == 2u);
}

}  // namespace
}  // namespace dtrun
