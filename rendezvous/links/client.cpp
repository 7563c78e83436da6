#include "rendezvous/links/client.h"

#include "base/loop/task_group.h"
#include "base/simulated.h"
#include "base/strings.h"
#include "rendezvous/links/handshake.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace dtrun {
namespace {

constexpr std::chrono::milliseconds kHeadStart{100};  // between the starts of two addresses
constexpr std::chrono::milliseconds kPauseMin{50};
constexpr std::chrono::milliseconds kPauseMax{500};

/// One race between addresses.
struct Race {
    explicit Race(asio::any_io_executor executor) : changed(executor, Timer::time_point::max()) {}

    std::optional<Connection> winner;
    std::vector<std::string> failures;
    bool all_timed_out = true;
    bool denied = false;
    Timer changed;
};

asio::awaitable<Result<std::optional<Sealing>>> try_address(tcp::socket& socket, std::string text,
                                                            std::uint16_t port,
                                                            Credentials credentials,
                                                            Deadline deadline) {
    boost::system::error_code bad;
    const auto address = asio::ip::make_address(text, bad);
    if (bad) co_return fail(Errc::invalid_input, "not a numeric address");
    const tcp::endpoint endpoint(address, port);
    boost::system::error_code error;
    if (SimulatedSystem::current != nullptr) {
        const int fd = SimulatedSystem::current->connect(*endpoint.data());
        if (fd < 0) co_return fail(Errc::unreachable, "{}", strerror(errno));
        socket.assign(endpoint.protocol(), fd);
    } else {
        DeadlineGuard guard(socket, deadline);
        const auto [connect_error] = co_await socket.async_connect(endpoint, use_tuple);
        error = connect_error;
        if (guard.expired()) co_return fail(Errc::timed_out, "no answer");
    }
    if (error) co_return fail(Errc::unreachable, "{}", error.message());
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    co_return co_await authenticate_to_server(socket, credentials, deadline);
}

/// A random time from half of `pause` to all of it, so that many refused clients do not retry at
/// once.
std::chrono::milliseconds jittered(std::chrono::milliseconds pause) {
    std::array<std::uint8_t, 1> random{};
    random_bytes(random);
    return pause / 2 + pause * random[0] / 512;
}

/// Tries one address. A server that closes the connection has too many unauthenticated ones at the
/// moment: it is tried again.
asio::awaitable<void> run_attempt(Race& race, std::string address, std::uint16_t port,
                                  Credentials credentials, Deadline start, Deadline deadline) {
    const auto executor = co_await asio::this_coro::executor;
    Timer wait(executor, start);
    co_await wait.async_wait(use_tuple);
    tcp::socket socket(executor);
    auto done = co_await try_address(socket, address, port, credentials, deadline);
    std::chrono::milliseconds pause = kPauseMin;
    while (!done && done.error().code == Errc::closed && Clock::now() + pause < deadline) {
        wait.expires_after(jittered(pause));
        co_await wait.async_wait(use_tuple);
        pause = std::min(2 * pause, kPauseMax);
        socket = tcp::socket(executor);
        done = co_await try_address(socket, address, port, credentials, deadline);
    }
    if (done) {
        if (!race.winner) race.winner.emplace(std::move(socket), std::move(*done));
    } else {
        race.failures.push_back(fmt::format("{} ({})", address, done.error().message));
        race.all_timed_out &= done.error().code == Errc::timed_out;
        race.denied |= done.error().code == Errc::denied;
    }
    race.changed.cancel();
}

}  // namespace

asio::awaitable<Result<Connection>> connect_to_server(std::vector<std::string> addresses,
                                                      std::uint16_t port, Credentials credentials,
                                                      Deadline deadline) {
    const auto executor = co_await asio::this_coro::executor;
    Race race(executor);
    TaskGroup attempts(executor);
    Deadline start = Clock::now();
    for (const std::string& address : addresses) {
        attempts.spawn(run_attempt(race, address, port, credentials, start, deadline));
        start += kHeadStart;
    }
    // The attempts use what is here, so they end first, also where we are cancelled.
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    bool is_cancelled = false;
    while (!race.winner && race.failures.size() < addresses.size()) {
        const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
        is_cancelled = state.cancelled() != asio::cancellation_type::none;
        if (is_cancelled) break;
        co_await race.changed.async_wait(use_tuple);
    }
    attempts.stop();
    co_await attempts.join();
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    co_await asio::this_coro::throw_if_cancelled(throws);
    if (is_cancelled && throws) throw boost::system::system_error(asio::error::operation_aborted);
    if (is_cancelled) co_return fail(Errc::cancelled, "connecting was cancelled");
    if (race.winner) co_return std::move(*race.winner);

    const Errc code = race.denied          ? Errc::denied
                      : race.all_timed_out ? Errc::timed_out
                                           : Errc::unreachable;
    co_return fail(code, "tried port {} of {}", port, join_names(race.failures, 16));
}

}  // namespace dtrun
