#include "rendezvous/links/tunnel_end.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

namespace dtrun {
namespace {

/// A connection whose bytes go through two ends, as from a debugger to a rank.
struct Tunnelled {
    Tunnelled()
        : here(socket_pair(io)),
          there(socket_pair(io)),
          near(io.get_executor(), 1, [this](const Tunnel& tunnel) { post(far, tunnel); }),
          far(io.get_executor(), 1, [this](const Tunnel& tunnel) { post(near, tunnel); }),
          tasks(io.get_executor()) {
        near.open(std::move(here.second));
        far.open(std::move(there.second));
        tasks.spawn(near.run());
        tasks.spawn(far.run());
    }
    void post(TunnelEnd& end, const Tunnel& tunnel) {
        under_way = std::max(under_way, tunnel.bytes.size());
        asio::post(io, [&end, tunnel] { end.take(tunnel); });
    }

    asio::io_context io;
    std::pair<tcp::socket, tcp::socket> here, there;
    TunnelEnd near, far;
    TaskGroup tasks;
    std::size_t under_way = 0;
};

asio::awaitable<std::string> read_to_end(tcp::socket& socket) {
    std::string text;
    char piece[4096];
    for (;;) {
        const auto [error, bytes] = co_await socket.async_read_some(asio::buffer(piece), use_tuple);
        if (error) co_return text;
        text.append(piece, bytes);
    }
}

asio::awaitable<void> write_and_close(tcp::socket& socket, std::string text) {
    const auto buffer = asio::buffer(text);
    co_await asio::async_write(socket, buffer, use_tuple);
    socket.close();
}

}  // namespace

TEST_CASE("a tunnel carries more than its window, in order, up to the end", "[tunnel]") {
    Tunnelled tunnelled;
    std::string text;
    for (int i = 0; text.size() < 8 * TunnelEnd::kWindowBytes; ++i) text += std::to_string(i) + " ";
    tunnelled.tasks.spawn(write_and_close(tunnelled.here.first, text));
    CHECK(run_to_end(tunnelled.io, read_to_end(tunnelled.there.first)) == text);
    tunnelled.io.restart();
    tunnelled.io.run_for(std::chrono::seconds(5));
    CHECK(tunnelled.tasks.size() == 0);
    CHECK(tunnelled.under_way <= TunnelEnd::kWindowBytes);
}

TEST_CASE("nobody reads at the far end of a tunnel: no more than the window is under way",
          "[tunnel]") {
    asio::io_context io;
    auto [user, ours] = socket_pair(io);
    std::size_t sent = 0;
    TunnelEnd end(io.get_executor(), 7, [&sent](const Tunnel& tunnel) {
        CHECK(tunnel.connection == 7);
        sent += tunnel.bytes.size();
    });
    end.open(std::move(ours));
    TaskGroup tasks(io.get_executor());
    tasks.spawn(end.run());
    tasks.spawn(write_and_close(user, std::string(4 * TunnelEnd::kWindowBytes, 'x')));
    io.run_for(std::chrono::milliseconds(200));
    CHECK(sent == TunnelEnd::kWindowBytes);
    end.take(Tunnel{7, {}, 1'000, false});
    io.restart();
    io.run_for(std::chrono::milliseconds(200));
    CHECK(sent == TunnelEnd::kWindowBytes + 1'000);
    end.stop();
    user.close();
    io.restart();
    io.run_for(std::chrono::seconds(5));
    CHECK(tasks.size() == 0);
}

}  // namespace dtrun
