#include "base/fd.h"
#include "base/loop/task_group.h"
#include "rendezvous/links/link.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/seed.h"

#include <unistd.h>
#include <random>

namespace dtrun {
namespace {

/// Reads frames until `count` have come; their payloads.
asio::awaitable<std::vector<std::string>> collect(Link& link, std::size_t count) {
    std::vector<std::string> payloads;
    while (payloads.size() < count) {
        const auto received = co_await link.receive();
        if (!received) co_return payloads;
        for (;;) {
            const auto frame = link.next();
            if (!frame || !*frame) break;
            payloads.emplace_back((*frame)->payload);
        }
    }
    co_return payloads;
}

/// Two links whose writers run until the end of the scope.
struct LinkPair {
    explicit LinkPair(asio::io_context& io_)
        : io(io_), sockets(socket_pair(io_)), tasks(io_.get_executor()) {
        a = std::make_unique<Link>(Connection{std::move(sockets.first), std::nullopt});
        b = std::make_unique<Link>(Connection{std::move(sockets.second), std::nullopt});
        tasks.spawn(a->run_writer());
        tasks.spawn(b->run_writer());
    }
    ~LinkPair() {
        a->close();
        b->close();
        tasks.stop();
        io.restart();
        io.run_for(std::chrono::seconds(1));
    }
    asio::io_context& io;
    std::pair<tcp::socket, tcp::socket> sockets;
    std::unique_ptr<Link> a, b;
    TaskGroup tasks;
};

asio::awaitable<void> serve(Link& link, std::function<Result<void>(const FrameView&)> handle,
                            Backpressure* towards = nullptr) {
    (void)co_await link.serve(std::move(handle), towards);
}

/// Everything that can happen without a wait.
void poll(asio::io_context& io) {
    io.restart();
    while (io.poll() > 0) {
    }
}

}  // namespace

TEST_CASE("frames of any size arrive in order, also when the socket is full", "[link]") {
    asio::io_context io;
    LinkPair links(io);
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    std::vector<std::string> sent;
    for (int i = 0; i < 200; ++i) {
        // Four are more than any socket buffer holds.
        const std::size_t size = i % 50 == 0 ? 8'000'000 : random() % 2'000;
        sent.emplace_back(size, static_cast<char>(i));
        links.a->send(encode_frame(FrameType::output, sent.back()));
    }
    CHECK(links.a->queued_bytes() > 0);
    CHECK(run_to_end(io, collect(*links.b, sent.size())) == sent);
    CHECK(links.a->queued_bytes() == 0);
}

TEST_CASE("bytes go from a pipe to the socket between other frames, and the sender is told",
          "[link]") {
    asio::io_context io;
    LinkPair links(io);
    Pipe pipe = make_pipe().value();
    const std::string data(40'000, 'd');
    REQUIRE(write_all(pipe.write.get(), data).has_value());
    bool told = false;
    links.a->send(encode_frame(FrameType::join, "before"));
    const auto header = encode_header({FrameType::output, static_cast<std::uint32_t>(data.size())});
    links.a->send_from_pipe(Bytes(header.data(), header.size()), pipe.read.get(), data.size(),
                            [&told] { told = true; });
    links.a->send(encode_frame(FrameType::done, "after"));
    const auto got = run_to_end(io, collect(*links.b, 3));
    CHECK(got == std::vector<std::string>{"before", data, "after"});
    CHECK(told);
}

TEST_CASE("what is sent soon goes out in one piece, in order with what is sent now", "[link]") {
    asio::io_context io;
    LinkPair links(io);
    for (int i = 0; i < 50; ++i) {
        links.a->send_soon(FrameType::request, std::to_string(2 * i));
        if (i % 10 == 9) links.a->send(encode_frame(FrameType::request, std::to_string(2 * i + 1)));
    }
    const auto got = run_to_end(io, collect(*links.b, 55));
    REQUIRE(got.size() == 55);
    CHECK(got[9] == "18");
    CHECK(got[10] == "19");
    CHECK(got[11] == "20");
}

TEST_CASE("what is sent when a pipe's bytes have gone does not keep later frames waiting",
          "[link]") {
    asio::io_context io;
    LinkPair links(io);
    Pipe pipe = make_pipe().value();
    REQUIRE(write_all(pipe.write.get(), "bytes").has_value());
    const auto header = encode_header({FrameType::output, 5});
    // Something is queued already, so that the writer sends all of it, and what follows from it.
    links.a->send_soon(FrameType::request, "first");
    links.a->send_from_pipe(Bytes(header.data(), header.size()), pipe.read.get(), 5,
                            [&] { links.a->send_soon(FrameType::request, "from the callback"); });
    CHECK(run_to_end(io, collect(*links.b, 3)).size() == 3);
    links.a->send_soon(FrameType::request, "later");
    CHECK(run_to_end(io, collect(*links.b, 1)) == std::vector<std::string>{"later"});
}

TEST_CASE("who has much to read is not heard until it has read it, and loses nothing", "[link]") {
    constexpr std::size_t kAsked = 100;
    asio::io_context io;
    LinkPair links(io);
    std::size_t heard = 0;
    const std::string large(1u << 20, 'x');
    links.tasks.spawn(serve(*links.a, [&](const FrameView&) {
        ++heard;
        links.a->send_soon(FrameType::reply, large);
        return Result<void>{};
    }));
    for (std::size_t i = 0; i < kAsked; ++i) links.b->send(encode_frame(FrameType::request, "?"));
    poll(io);
    CHECK(links.a->is_full());
    CHECK(heard < kAsked / 2);  // what is unsent, and what the kernel holds
    CHECK(links.a->queued_bytes() < Link::kFullBytes + 2 * large.size());
    CHECK(run_to_end(io, collect(*links.b, kAsked)).size() == kAsked);
    CHECK(heard == kAsked);
    CHECK_FALSE(links.a->is_full());
}

namespace {

/// Makes a link full, and by more than the kernel may take of it later, when it finds that its buffers
/// are too small.
/// \return how many frames it has sent
std::size_t fill(Link& link) {
    constexpr std::size_t kMore = 12;
    const Bytes frame = encode_frame(FrameType::request, std::string(1u << 20, 'x'));
    std::size_t sent = 0;
    for (; !link.is_full(); ++sent) link.send(frame);
    for (std::size_t i = 0; i < kMore; ++i, ++sent) link.send(frame);
    return sent;
}

}  // namespace

TEST_CASE("nobody is heard whose frames lead to a link that is full", "[link]") {
    asio::io_context io;
    LinkPair below(io), above(io);
    std::size_t heard = 0;
    const std::size_t sent = fill(*above.a);
    below.tasks.spawn(serve(
        *below.a,
        [&](const FrameView&) {
            ++heard;
            return Result<void>{};
        },
        above.a.get()));
    below.b->send(encode_frame(FrameType::request, "?"));
    poll(io);
    CHECK(heard == 0);
    // It is not silent, for nobody listens to it.
    CHECK(Clock::now() - below.a->last_heard() < std::chrono::milliseconds(500));
    run_to_end(io, collect(*above.b, sent));
    poll(io);
    CHECK(heard == 1);

    (void)fill(*above.a);
    below.b->send(encode_frame(FrameType::request, "?"));
    poll(io);
    CHECK(heard == 1);
    above.a->close();  // what comes now leads nowhere, but nobody waits for that
    poll(io);
    CHECK(heard == 2);
}

TEST_CASE("what a peer has asked for does not cut it off, however much it is", "[link]") {
    asio::io_context io;
    LinkPair links(io);
    const auto large = std::make_shared<const Bytes>(Bytes(15u << 20, 'x'));
    for (int i = 0; i < 20; ++i) links.a->send_soon(FrameType::reply, "header", large);
    CHECK(large.use_count() == 21);  // kept once
    poll(io);
    const auto got = run_to_end(io, collect(*links.b, 20));
    REQUIRE(got.size() == 20);
    CHECK(got.back() == "header" + *large);
    CHECK(large.use_count() == 1);
}

TEST_CASE("a peer that does not read what it never asked for is cut off", "[link]") {
    asio::io_context io;
    LinkPair links(io);
    const std::string large(8u << 20, 'x');
    for (std::size_t sent = 0; sent <= Link::kUnaskedBytesMax + (16u << 20); sent += large.size())
        links.a->send(encode_frame(FrameType::assign, large));
    CHECK(links.a->queued_bytes() == 0);
    const auto received = run_to_end(io, links.a->receive());
    REQUIRE_FALSE(received.has_value());
    CHECK(received.error().message == "cut off: it has not read 128 MiB that wait for it");
}

TEST_CASE("of many links that send at once so many write in a turn as may, and all in the end",
          "[link]") {
    constexpr int kLinks = 7;
    asio::io_context io;
    SendTurns turns(io.get_executor(), 3);
    TaskGroup tasks(io.get_executor());
    std::vector<std::unique_ptr<Link>> here, there;
    for (int i = 0; i < kLinks; ++i) {
        auto [one, other] = socket_pair(io);
        here.push_back(std::make_unique<Link>(Connection{std::move(one), std::nullopt}));
        there.push_back(std::make_unique<Link>(Connection{std::move(other), std::nullopt}));
        here.back()->share(turns);
        tasks.spawn(here.back()->run_writer());
    }
    poll(io);
    const bool soon = GENERATE(false, true);
    for (const auto& link : here) {
        if (soon)
            link->send_soon(FrameType::heartbeat, "1");
        else
            link->send(encode_frame(FrameType::heartbeat, "1"));
        link->send(FrameType::heartbeat, "2");
    }
    const auto full = [&here] {
        return std::ranges::count_if(here,
                                     [](const auto& link) { return link->queued_bytes() > 0; });
    };
    CHECK(full() >= kLinks - 3);
    poll(io);
    CHECK(full() == 0);
    for (const auto& link : there)
        CHECK(run_to_end(io, collect(*link, 2)) == std::vector<std::string>{"1", "2"});
    for (const auto& link : here) link->close();
    poll(io);
    CHECK(tasks.size() == 0);
}

TEST_CASE("turns are shared by those who wait for them, three at a time", "[link]") {
    asio::io_context io;
    SendTurns turns(io.get_executor(), 3);
    CHECK(turns.take());
    CHECK(turns.take());
    CHECK(turns.take());
    CHECK_FALSE(turns.take());
    std::vector<int> woken;
    std::vector<std::unique_ptr<Timer>> timers;
    for (int i = 0; i < 5; ++i) {
        timers.push_back(std::make_unique<Timer>(io, Timer::time_point::max()));
        timers.back()->async_wait([&woken, i](const auto&) { woken.push_back(i); });
        turns.wait(*timers.back());
    }
    turns.leave(*timers[1]);
    io.poll_one();  // the end of this turn
    CHECK_FALSE(turns.take());
    io.restart();
    while (woken.size() < 3 && io.poll_one() > 0) {
    }
    CHECK(woken == std::vector<int>{0, 2, 3});
    timers[1]->cancel();
    poll(io);
    CHECK(woken == std::vector<int>{0, 2, 3, 4, 1});
    CHECK(turns.take());
}

TEST_CASE("a closed link ends who waits for it", "[link]") {
    asio::io_context io;
    LinkPair links(io);
    asio::post(io, [&] { links.b->close(); });
    const auto closed = run_to_end(io, links.b->receive());
    REQUIRE_FALSE(closed.has_value());
    CHECK(closed.error().code == Errc::cancelled);
    const auto peer = run_to_end(io, links.a->receive());
    REQUIRE_FALSE(peer.has_value());
    CHECK(peer.error().code == Errc::closed);
}

}  // namespace dtrun
