#include "base/loop/task_group.h"
#include "rendezvous/wire/output_messages.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/virtual_time.h"
#include "worker/ranks/output_pump.h"

#include <fcntl.h>
#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace dtrun {

using namespace ranks;
namespace {

constexpr std::uint32_t kWindow = 4096;

/// A pump for one rank, whose output arrives in `got`, and nobody who gives credit unasked.
struct Bench {
    Bench() : sockets(socket_pair(io)), tasks(io.get_executor()) {
        agent = std::make_unique<Link>(Connection{std::move(sockets.first), std::nullopt});
        head = std::make_unique<Link>(Connection{std::move(sockets.second), std::nullopt});
        pump = std::make_unique<OutputPump>(io.get_executor(), *agent, kWindow,
                                            [this](SlotIndex, Stream stream) { ++ended[stream]; });
        tasks.spawn(agent->run_writer());
        tasks.spawn(receive());
        for (const Stream stream : {Stream::out, Stream::err}) {
            Pipe made = make_pipe().value();
            pump->add(SlotIndex{0}, stream, std::move(made.read));
            pipes[stream] = std::move(made.write);
        }
    }
    ~Bench() {
        agent->close();
        head->close();
        tasks.stop();
        run();
    }
    asio::awaitable<void> receive() {
        const std::function<Result<void>(const FrameView&)> handle =
            [this](const FrameView& frame) {
                const auto output = decode_output(frame.payload);
                if (output) got[output->header.stream] += output->data;
                return Result<void>{};
            };
        co_await head->serve(handle);
    }
    void run() { settle(io, std::chrono::milliseconds(50)); }
    void write(Stream stream, std::size_t bytes, char what) {
        REQUIRE(write_all(pipes[stream].get(), std::string(bytes, what)).has_value());
    }
    asio::io_context io;
    std::pair<tcp::socket, tcp::socket> sockets;
    std::unique_ptr<Link> agent, head;
    std::unique_ptr<OutputPump> pump;
    std::map<Stream, Fd> pipes;
    std::map<Stream, std::string> got;
    std::map<Stream, int> ended;
    TaskGroup tasks;
};

/// Writes `bytes` to standard output, more than may be under way at once, and waits for all of it.
/// \return how long that took
std::chrono::nanoseconds pass(VirtualTime& time, Bench& bench, std::size_t bytes) {
    const Deadline began = time.now();
    std::string& got = bench.got[Stream::out];
    got.clear();
    bench.write(Stream::out, bytes, 'x');
    bench.pump->credit(bytes);
    time.run(
        bench.io, [&] { return got.size() == bytes; }, after(std::chrono::seconds(1)));
    return time.now() - began;
}

}  // namespace

TEST_CASE("a traceback comes through while nobody reads standard output", "[output][pump]") {
    Bench bench;
    bench.write(Stream::out, 2 * kWindow, 'o');
    bench.run();
    CHECK(bench.got[Stream::out].size() == kWindow - kWindow / 8);
    bench.write(Stream::err, 100, 'e');
    bench.pipes.clear();  // the rank has ended
    bench.run();
    CHECK(bench.got[Stream::err] == std::string(100, 'e'));
    CHECK(bench.ended[Stream::err] == 1);
    CHECK(bench.ended[Stream::out] == 0);
}

TEST_CASE("with every credit the rest follows, in order, and the end after it", "[output][pump]") {
    Bench bench;
    for (const char what : {'1', '2', '3'}) bench.write(Stream::out, kWindow, what);
    bench.write(Stream::err, 2 * kWindow, 'e');
    bench.pipes.clear();
    bench.run();
    CHECK(bench.got[Stream::out].size() + bench.got[Stream::err].size() == kWindow);
    for (int i = 0; i < 5; ++i) {
        bench.pump->credit(kWindow);
        bench.run();
    }
    CHECK(bench.got[Stream::out] ==
          std::string(kWindow, '1') + std::string(kWindow, '2') + std::string(kWindow, '3'));
    CHECK(bench.got[Stream::err] == std::string(2 * kWindow, 'e'));
    CHECK(bench.pump->all_ended());
}

TEST_CASE(
    "a stream rests for less the more of it a rest leaves in its pipe, and soon for longer again",
    "[output][pump]") {
    VirtualTime time;
    Bench bench;
    ::fcntl(bench.pipes[Stream::out].get(), F_SETPIPE_SZ, 256 << 10);
    const auto ms = [](int value) { return std::chrono::milliseconds(value); };
    CHECK(pass(time, bench, 100) < ms(1));  // and rests from now on
    CHECK(pass(time, bench, 256 << 10) >= ms(2));
    CHECK(pass(time, bench, 100) < ms(1));
    CHECK(pass(time, bench, 200 << 10) < ms(1));
    pass(time, bench, 100);
    pass(time, bench, 100);  // a rest that left next to nothing
    CHECK(pass(time, bench, 100) >= ms(2));
}

TEST_CASE("a stream that had more than the window had room for does not rest", "[output][pump]") {
    VirtualTime time;
    Bench bench;
    const std::size_t all = 64u << 10;
    bench.write(Stream::out, all, 'x');
    std::string& got = bench.got[Stream::out];
    const Deadline began = time.now();
    while (got.size() + kWindow < all - (32u << 10)) {
        const std::size_t before = got.size();
        bench.pump->credit(kWindow);
        time.run(
            bench.io, [&] { return got.size() > before; }, after(std::chrono::seconds(1)));
    }
    CHECK(time.now() - began < std::chrono::milliseconds(1));
}

}  // namespace dtrun
