#include "launcher/transport/dial.h"

#include "base/log.h"
#include "base/loop/net.h"
#include "launcher/transport/host_target.h"

namespace dtrun::transport {

asio::awaitable<Result<std::vector<asio::ip::address>>> look_up(Pool& pool, std::string name,
                                                                Deadline deadline) {
    const auto work = [name] { return resolve(name); };
    auto found = co_await run_on(pool, work, deadline);
    if (found) co_return std::move(*found);
    if (found.error().code == Errc::timed_out)
        co_return fail(Errc::timed_out, "the name server does not answer");
    co_return std::unexpected(found.error());
}

asio::awaitable<Result<tcp::socket>> connect_any(std::vector<asio::ip::address> addresses,
                                                 std::uint16_t port, Deadline deadline) {
    const auto executor = co_await asio::this_coro::executor;
    Error last;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        const asio::ip::address& address = addresses[i];
        tcp::socket socket(executor);
        // An address that swallows packets must leave time for the others.
        const auto share = (deadline - Clock::now()) / static_cast<long>(addresses.size() - i);
        DeadlineGuard guard(socket, after(share));
        const tcp::endpoint endpoint(address, port);
        const auto [error] = co_await socket.async_connect(endpoint, use_tuple);
        boost::system::error_code ignored;
        if (!error) {
            socket.set_option(tcp::no_delay(true), ignored);
            co_return socket;
        }
        if (guard.expired()) {
            last = Error{Errc::timed_out,
                         fmt::format("no answer on port {} (down, or a firewall drops it)", port)};
            continue;
        }
        if (error == asio::error::operation_aborted) co_return fail(Errc::cancelled, "cancelled");
        log::info("{} port {}: {}", numeric(address), port, error.message());
        last = Error{Errc::unreachable, fmt::format("port {}: {}", port, error.message())};
        if (error == asio::error::connection_refused)
            last.message = fmt::format("port {} refuses connections (does sshd run there?)", port);
    }
    co_return std::unexpected(last);
}

}  // namespace dtrun::transport
