#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dtrun::transport {

/// Threads for calls that block, such as name look-ups, or that take long.
using Pool = asio::thread_pool;

/// Runs `work` on a thread of the pool. A result after the deadline is dropped.
/// \param work  () -> Value; copyable
/// Errc: timed_out, cancelled
template <class Work>
asio::awaitable<Result<std::invoke_result_t<Work>>> run_on(Pool& pool, Work work,
                                                           Deadline deadline) {
    using Value = std::invoke_result_t<Work>;
    struct State {
        State(asio::any_io_executor executor, Deadline limit) : done(executor, limit) {}
        Timer done;
        std::optional<Value> result;
    };
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    const auto state = std::make_shared<State>(here, deadline);
    asio::post(pool, [here, state, work] {
        asio::post(here, [state, result = work()]() mutable {
            state->result.emplace(std::move(result));
            state->done.cancel();
        });
    });
    co_await state->done.async_wait(use_tuple);
    if (state->result) co_return Result<Value>(std::in_place, std::move(*state->result));
    if (Clock::now() < deadline) co_return fail(Errc::cancelled, "cancelled");
    co_return fail(Errc::timed_out, "no answer");
}

/// Numeric addresses of a name.
/// Errc: not_found, unreachable (no name server), timed_out, cancelled
asio::awaitable<Result<std::vector<asio::ip::address>>> look_up(Pool& pool, std::string name,
                                                                Deadline deadline);

/// Tries one address after the other; the message is about the last one, and names port but not host.
/// \param addresses  at least one
/// Errc: unreachable, timed_out, cancelled
asio::awaitable<Result<tcp::socket>> connect_any(std::vector<asio::ip::address> addresses,
                                                 std::uint16_t port, Deadline deadline);

}  // namespace dtrun::transport
