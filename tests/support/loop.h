#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "tests/support/catch.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

namespace dtrun {

template <class T>
asio::awaitable<void> store(asio::awaitable<T> task, std::optional<T>& result) {
    result.emplace(co_await std::move(task));
}

/// Runs `task` on `io` until it has ended, at most for `limit`. It is cancelled then, and has ended all the same when
/// this returns: it may refer to what the test has on its stack. A task that heeds no cancellation ends the test program.
/// \return nothing: it hung
template <class T>
std::optional<T> run_for_at_most(asio::io_context& io, asio::awaitable<T> task,
                                 std::chrono::milliseconds limit) {
    constexpr std::chrono::seconds kCancelLimit{5};
    std::optional<T> result;
    std::exception_ptr thrown;
    bool has_ended = false;
    const auto cancel = std::make_shared<asio::cancellation_signal>();
    const auto ended = [&](std::exception_ptr error) {
        has_ended = true;
        thrown = error;
        io.stop();
    };
    asio::co_spawn(io, store(std::move(task), result),
                   asio::bind_cancellation_slot(cancel->slot(), ended));
    io.restart();
    io.run_for(limit);
    if (has_ended) {
        if (thrown) std::rethrow_exception(thrown);
        return result;
    }
    cancel->emit(asio::cancellation_type::terminal);
    asio::post(io, [cancel] {});  // what has been emitted may be in the queue, and refers to it
    io.restart();
    io.run_for(kCancelLimit);
    if (has_ended) return std::nullopt;
    std::fputs("a test hangs, and what it waits for cannot be cancelled\n", stderr);
    std::abort();
}

/// Runs `task` on `io` until it has ended, at most half a minute: a test that hangs fails instead.
template <class T>
T run_to_end(asio::io_context& io, asio::awaitable<T> task) {
    auto result = run_for_at_most(io, std::move(task), std::chrono::seconds(30));
    if (!result) FAIL("it has not ended within 30 s");
    return std::move(*result);
}

/// Runs handlers until none has been ready for `span`, however slow the machine is.
inline void settle(asio::io_context& io, std::chrono::milliseconds span) {
    io.restart();
    while (io.poll() + io.run_one_for(span) > 0) continue;
}

/// Runs handlers until `done()`, at most half a minute. \return whether it is done
template <class Done>
bool runs_until(asio::io_context& io, Done done) {
    const Deadline limit = after(std::chrono::seconds(30));
    io.restart();
    while (!done() && Clock::now() < limit) io.run_one_for(std::chrono::milliseconds(20));
    return done();
}

/// Two ends of a TCP connection over loopback.
inline std::pair<tcp::socket, tcp::socket> socket_pair(asio::io_context& io) {
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket client(io);
    client.connect(acceptor.local_endpoint());
    return {std::move(client), acceptor.accept()};
}

}  // namespace dtrun
