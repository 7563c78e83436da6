#include "worker/client/server_connection.h"

#include "tests/support/catch.h"
#include "tests/support/messages_of.h"
#include "worker/client/client.h"

#include <atomic>
#include <map>
#include <thread>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

const std::string kEnd = "the other side has gone";

/// A connection whose frames name the waiter that they are for, and the other side of it.
class Talk final : private ServerConnection::Handler {
public:
    explicit Talk(bool comes_back = false) : comes_back_(comes_back) { open({}); }

    void open(std::vector<Bytes> first) {
        auto [ours, theirs] = private_socket_pair();
        other = FrameSocket(std::move(theirs));
        const auto opened = connection.open(FrameSocket(std::move(ours)),
                                            [&](const FrameSocket&) { return first; });
        REQUIRE(opened);
    }
    /// Waits for the frame of that name.
    Outcome<void> wait_for(const std::string& name, const WaitContext& context = {}) {
        ServerConnection::Waiter waiter;
        ServerConnection::Lock lock = connection.lock();
        waiters_[name] = &waiter;
        const auto waited = connection.wait(lock, waiter, context);
        waiters_.erase(name);
        return waited;
    }
    std::size_t waiting() const {
        const auto lock = connection.lock();
        return waiters_.size();
    }
    void wait_until_waiting(std::size_t count) const {
        while (waiting() != count) std::this_thread::yield();
    }
    /// The other side says it.
    void say(const std::string& name) { REQUIRE(other.send(encode_frame(FrameType::event, name))); }
    /// What the other side has been told; empty once the connection has ended.
    std::string heard() {
        for (;;) {
            const auto frame = other.next();
            if (frame && *frame) return std::string((*frame)->payload);
            if (other.receive(Moment::max()) == FrameSocket::Got::end) return "";
        }
    }

    ServerConnection connection{*this, kEnd};
    FrameSocket other;
    std::atomic<int> lost{0};
    int closed = 0;

private:
    void on_open(int) override {}
    void on_bytes() override {}
    Result<void> on_frame(const FrameView& frame) override {
        if (frame.type != FrameType::event) return fail(Errc::invalid_input, "not an event");
        const auto waiter = waiters_.find(std::string(frame.payload));
        if (waiter != waiters_.end()) waiter->second->finish();
        return {};
    }
    bool on_lost() override {
        ++lost;
        return comes_back_;
    }
    void on_closed() override { ++closed; }

    const bool comes_back_;
    std::map<std::string, ServerConnection::Waiter*> waiters_;
};

Bytes event(const std::string& name) {
    return encode_frame(FrameType::event, name);
}

}  // namespace

TEST_CASE("every message to a rank, of its agent or of a daemon, has one receiver", "[client]") {
    Surroundings found;
    found.launcher = Launcher::daemon;
    const Client client(std::move(found), std::nullopt, Client::Role::rank);
    std::set<FrameType> sent = messages_of("agent → rank");
    sent.merge(messages_of("daemon → member"));
    CHECK(types_with([&client](FrameType type) { return client.router().has(type); }) == sent);
}

TEST_CASE("whoever reads hands others their frames, and leaves reading to them", "[client]") {
    Talk talk;
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    for (const char* name : {"a", "b", "c"})
        threads.emplace_back([&talk, &done, name] { done += talk.wait_for(name) ? 1 : 0; });
    talk.wait_until_waiting(3);
    std::size_t left = 3;
    for (const char* name : {"b", "a", "c"}) {  // one of them is the reader's own
        talk.say(name);
        talk.wait_until_waiting(--left);
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(done == 3);
}

TEST_CASE("a wait ends with its patience, and others go on", "[client]") {
    Talk talk;
    std::atomic<bool> done{false};
    std::thread other([&] { done = talk.wait_for("a").has_value(); });
    talk.wait_until_waiting(1);
    CHECK(talk.wait_for("b", {now() + 20ms, {}}).error().code == DTRUN_TIMED_OUT);
    const WaitContext none{Moment::max(), [] { return true; }};
    CHECK(talk.wait_for("b", none).error().code == DTRUN_CANCELLED);
    talk.say("a");
    other.join();
    CHECK(done);
}

TEST_CASE("who stood still beyond its patience reads what came meanwhile", "[client]") {
    Talk talk;
    const WaitContext context{now() + 20ms, [&talk] {
                                  // As if the process were stopped: the answer comes, and time goes by.
                                  talk.say("a");
                                  std::this_thread::sleep_for(700ms);
                                  return false;
                              }};
    CHECK(talk.wait_for("a", context).has_value());
}

TEST_CASE("the end of a connection ends all waits, and later ones at once", "[client]") {
    Talk talk;
    std::vector<Outcome<void>> ends(2);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 2; ++i)
        threads.emplace_back([&, i] { ends[i] = talk.wait_for(std::to_string(i)); });
    talk.wait_until_waiting(2);
    talk.other.shut_down();
    for (std::thread& thread : threads) thread.join();
    for (const auto& end : ends) CHECK(end.error().text == kEnd);
    CHECK(talk.wait_for("a").error().text == kEnd);
    CHECK(talk.lost == 1);
    CHECK(talk.closed == 1);
}

TEST_CASE("a frame that the handler does not take closes the connection", "[client]") {
    Talk talk;
    REQUIRE(talk.other.send(encode_frame(FrameType::stop, "")));
    CHECK(talk.wait_for("a").error().text == "protocol: not an event");
}

TEST_CASE("a wait goes on when a lost connection is opened again", "[client]") {
    Talk talk(true);
    Outcome<void> waited;
    std::thread waits([&] { waited = talk.wait_for("a"); });
    talk.wait_until_waiting(1);
    talk.other.shut_down();
    while (talk.lost == 0) std::this_thread::yield();
    talk.connection.send(event("unheard"));
    talk.open({event("it is me"), event("again")});
    talk.connection.send(event("heard"));
    CHECK(talk.heard() == "it is me");
    CHECK(talk.heard() == "again");
    CHECK(talk.heard() == "heard");
    talk.say("a");
    waits.join();
    CHECK(waited);
    CHECK(talk.closed == 0);
}

TEST_CASE("what is ready counts, even if the connection has ended meanwhile", "[client]") {
    Talk talk;
    bool ready = false;
    std::atomic<bool> looked{false};
    Outcome<void> waited;
    std::thread waits([&] {
        ServerConnection::Lock lock = talk.connection.lock();
        const auto is_ready = [&] {
            looked = true;
            return ready;
        };
        waited = talk.connection.wait_until(lock, is_ready, {});
    });
    while (!looked) std::this_thread::yield();
    {
        const auto lock = talk.connection.lock();  // it waits by now
        talk.connection.close({DTRUN_CLOSED, "enough"});
        ready = true;
    }
    waits.join();
    CHECK(waited);
}

TEST_CASE("who has no time to send a frame leaves its rest before the next one", "[client]") {
    Talk talk;
    const std::string large(4u << 20, 'x');
    const WaitContext little{now() + 10ms, {}};
    CHECK(talk.connection.send(event(large), little).error().code == DTRUN_TIMED_OUT);
    const WaitContext none{Moment::max(), [] { return true; }};
    CHECK(talk.connection.send(event("never sent"), none).error().code == DTRUN_CANCELLED);
    std::thread sends([&] { CHECK(talk.connection.send(event("sent"))); });
    CHECK(talk.heard() == large);
    CHECK(talk.heard() == "sent");
    sends.join();
}

TEST_CASE("what was left of a frame is not sent over another connection", "[client]") {
    Talk talk(true);
    const std::string large(4u << 20, 'x');
    CHECK_FALSE(talk.connection.send(event(large), {now() + 10ms, {}}));
    talk.other.shut_down();
    CHECK_FALSE(talk.wait_for("a", {now() + 10ms, {}}));
    CHECK(talk.lost == 1);
    talk.open({event("it is me")});
    talk.connection.send(event("next"));
    CHECK(talk.heard() == "it is me");
    CHECK(talk.heard() == "next");
}

TEST_CASE("the last frames are read before the connection ends", "[client]") {
    Talk talk;
    std::thread finishes([&] {
        talk.connection.finish([] { return std::vector{event("one"), event("two")}; }, "enough");
    });
    CHECK(talk.heard() == "one");
    CHECK(talk.heard() == "two");
    CHECK(talk.heard().empty());
    talk.other.shut_down();
    finishes.join();
}

}  // namespace dtrun::embedded
