#include "worker/client/requests.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kClient = 7;
constexpr std::uint64_t kChangesMax = 64;

/// Requests over a connection, and the store at the other end of it.
class Asked final : private Connection::Handler {
public:
    Asked() {
        auto [ours, theirs] = private_socket_pair();
        store_ = FrameSocket(std::move(theirs));
        REQUIRE(connection_.open(FrameSocket(std::move(ours)),
                                 [](const FrameSocket&) { return std::vector<Bytes>(); }));
    }
    Outcome<Bytes> set(std::size_t value_bytes, const Patience& patience = {}) {
        const std::string value(value_bytes, 'x');
        const StoreRequest request{.op = Op::set, .keys = {"key"}, .values = {value}};
        return requests_.ask(Op::set, encode_request({}, request, 1), patience);
    }
    /// The next request that the store gets; one without a number if it gets none.
    RequestHeader next_request(Moment until = now() + 10s) {
        for (;;) {
            const auto frame = store_.next();
            if (frame && *frame) return decode_request((*frame)->payload)->header;
            if (store_.receive(until) != FrameSocket::Got::bytes) return {};
        }
    }
    static Bytes answer_to(std::uint64_t id) {
        return encode_reply({kClient, id, Status::ok}, "\x90");
    }
    void answer(const Bytes& frames) { REQUIRE(store_.send(frames)); }
    std::vector<Bytes> unanswered() const {
        const auto lock = connection_.lock();
        std::vector<Bytes> frames;
        requests_.add_unanswered(frames);
        return frames;
    }

private:
    void on_open(int) override {}
    void on_bytes() override {}
    Result<void> on_frame(const FrameView& frame) override {
        return requests_.on_reply(frame.payload);
    }
    bool on_lost() override { return false; }
    void on_closed() override {}

    Connection connection_{*this, "the store has gone"};
    Standing standing_{Place{}};
    Requests requests_{connection_, standing_, kClient};
    FrameSocket store_;
};

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
    const auto result = asked.set(1, {now() + 10ms, {}});
    CHECK(result.error().code == DTRUN_TIMED_OUT);
    CHECK(asked.next_request().op == Op::set);
    CHECK(asked.next_request().op == Op::cancel);
    CHECK(asked.unanswered().empty());
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
