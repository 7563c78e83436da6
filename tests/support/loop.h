#pragma once

#include "base/asio.h"
#include "base/deadline.h"

#include <catch2/catch.hpp>
#include <optional>

namespace dtrun {

/// Runs `task` on `io` until it has ended, at most ten seconds: a test that hangs fails instead.
template <class T>
T run_to_end(asio::io_context& io, asio::awaitable<T> task) {
    std::optional<T> result;
    asio::co_spawn(io, std::move(task), [&](std::exception_ptr error, T value) {
        if (error) std::rethrow_exception(error);
        result = std::move(value);
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
