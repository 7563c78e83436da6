// The parts of a link that stand alone; test_link.cpp has them together.

#include "rendezvous/links/incoming_frames.h"
#include "rendezvous/links/send_queue.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

#include <unistd.h>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace dtrun {
namespace {

constexpr Key kKey{1, 2, 3};

/// What frames are found when `bytes` come, at most `step` at a time.
std::vector<std::string> frames_of(IncomingFrames& incoming, std::string_view bytes,
                                   std::size_t step) {
    std::vector<std::string> payloads;
    while (!bytes.empty()) {
        incoming.make_room();
        bool more = false;
        while (!more && !bytes.empty()) {
            const auto room = incoming.room();
            const std::size_t size = std::min({bytes.size(), room.size(), step});
            std::ranges::copy(bytes.substr(0, size), room.begin());
            bytes.remove_prefix(size);
            const auto received = incoming.received(size);
            REQUIRE(received.has_value());
            more = *received;
        }
        for (auto frame = incoming.next(); frame && *frame; frame = incoming.next())
            payloads.emplace_back((*frame)->payload);
    }
    return payloads;
}

/// A queue to a socket whose other end the test reads.
struct Queue {
    explicit Queue(bool encrypted = false)
        : ends(socket_pair(io)),
          socket(std::move(ends.first)),
          queue(socket, encrypted ? std::optional<Seal>(Seal(kKey)) : std::nullopt,
                [this] { ++taken; }) {
        socket.non_blocking(true);
        ends.second.non_blocking(true);
    }
    /// What has arrived.
    std::string read() {
        std::string all(1u << 20, '\0');
        boost::system::error_code error;
        all.resize(ends.second.read_some(asio::buffer(all), error));
        return all;
    }
    asio::io_context io;
    std::pair<tcp::socket, tcp::socket> ends;
    StreamSocket socket;
    int taken = 0;
    SendQueue queue;
};

}  // namespace

TEST_CASE("frames are found however their bytes are cut, encrypted or not", "[link]") {
    const bool encrypted = GENERATE(false, true);
    const std::size_t step = GENERATE(1, 7, 5'000, 1'000'000);
    std::vector<std::string> sent;
    Bytes bytes;
    for (const std::size_t size : {0, 1, 8, 4'096, 20'000, 700'000, 3, 100}) {
        if (size > 20'000 && step == 1) continue;  // takes seconds
        sent.emplace_back(size, static_cast<char>('a' + size % 26));
        bytes += encode_frame(FrameType::output, sent.back());
    }
    Bytes wire;
    if (encrypted)
        Seal(kKey).seal(bytes, wire);
    else
        wire = bytes;
    IncomingFrames incoming(encrypted ? std::optional<Seal>(Seal(kKey)) : std::nullopt);
    CHECK(frames_of(incoming, wire, step) == sent);
}

TEST_CASE("memory for a large frame is given back when no more of these come", "[link]") {
    IncomingFrames incoming(std::nullopt);
    frames_of(incoming, encode_frame(FrameType::output, std::string(8u << 20, 'x')), 1u << 20);
    for (int i = 0; i < 3; ++i) frames_of(incoming, encode_frame(FrameType::output, "small"), 100);
    incoming.make_room();
    CHECK(incoming.room().size() <= 512u << 10);
}

TEST_CASE("memory for much traffic is given back when there is little for a while", "[link]") {
    const bool encrypted = GENERATE(false, true);
    IncomingFrames incoming(encrypted ? std::optional<Seal>(Seal(kKey)) : std::nullopt);
    Seal seal(kKey);
    const auto came = [&](std::size_t bytes) {
        const Bytes frame = encode_frame(FrameType::output, std::string(bytes, 'x'));
        Bytes wire;
        if (encrypted)
            seal.seal(frame, wire);
        else
            wire = frame;
        frames_of(incoming, wire, 1u << 20);
        incoming.make_room();
    };
    for (int i = 0; i < 20; ++i) came(100'000);
    CHECK(incoming.room().size() >= 100'000);
    CHECK(incoming.received(0).has_value());
    for (int i = 0; i < 200; ++i) came(8);
    CHECK(incoming.room().size() < 2'000);
}

TEST_CASE("a queue is full and over its limit by what the peer has not asked for", "[link]") {
    Queue here;
    const std::string large(15u << 20, 'x');
    for (int i = 0; i < 10; ++i) here.queue.add(encode_frame(FrameType::reply, large));
    CHECK(here.queue.is_full());
    CHECK_FALSE(here.queue.is_over_limit());
    const auto shared = std::make_shared<const Bytes>(large);
    for (int i = 0; i < 9; ++i) here.queue.add(FrameType::heartbeat, "", shared);
    CHECK(here.queue.is_over_limit());
    here.queue.clear();
    CHECK(here.queue.bytes() == 0);
    CHECK_FALSE(here.queue.is_over_limit());
    CHECK_FALSE(here.queue.is_broken());
}

TEST_CASE("small frames in a row are one entry, and all kinds of entries keep their order",
          "[link]") {
    const bool encrypted = GENERATE(false, true);
    Queue here(encrypted);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], "piped", 5) == 5);
    bool sent = false;
    here.queue.add_to_batch(FrameType::output, "one");
    here.queue.add_to_batch(FrameType::output, "two");
    CHECK(here.queue.size() == 1);
    here.queue.add(FrameType::output, "th", std::make_shared<const Bytes>("ree"));
    const auto header = encode_header({FrameType::output, 5});
    here.queue.add_from_pipe(Bytes(header.data(), header.size()), ends[0], 5,
                             [&sent] { sent = true; });
    here.queue.add(encode_frame(FrameType::output, "five"));
    CHECK(here.queue.size() == 4);
    CHECK(here.queue.write() == SendQueue::Progress::done);
    CHECK(sent);
    CHECK(here.queue.bytes() == 0);
    CHECK(here.taken > 0);
    IncomingFrames incoming(encrypted ? std::optional<Seal>(Seal(kKey)) : std::nullopt);
    CHECK(frames_of(incoming, here.read(), 1'000) ==
          std::vector<std::string>{"one", "two", "three", "piped", "five"});
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST_CASE("a pipe with less in it than was promised breaks the queue", "[link]") {
    const bool encrypted = GENERATE(false, true);
    Queue here(encrypted);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], "short", 5) == 5);
    ::close(ends[1]);
    const auto header = encode_header({FrameType::output, 6});
    here.queue.add_from_pipe(Bytes(header.data(), header.size()), ends[0], 6, {});
    CHECK(here.queue.write() == SendQueue::Progress::broken);
    ::close(ends[0]);
}

}  // namespace dtrun
