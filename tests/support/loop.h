#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "tests/support/catch.h"

#include <optional>

namespace dtrun {

template <class T>
asio::awaitable<void> store(asio::awaitable<T> task, std::optional<T>& result) {
    result.emplace(co_await std::move(task));
}

/// Runs `task` on `io` until it has ended, at most ten seconds: a test that hangs fails instead.
template <class T>
T run_to_end(asio::io_context& io, asio::awaitable<T> task) {
    std::optional<T> result;
    asio::co_spawn(io, store(std::move(task), result), [&io](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        io.stop();
    });
    io.restart();
    io.run_for(std::chrono::seconds(10));
    REQUIRE(result.has_value());
    return std::move(*result);
}

/// Two ends of a TCP connection over loopback.
inline std::pair<tcp::socket, tcp::socket> socket_pair(asio::io_context& io) {
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket client(io);
    client.connect(acceptor.local_endpoint());
    return {std::move(client), acceptor.accept()};
}

}  // namespace dtrun
