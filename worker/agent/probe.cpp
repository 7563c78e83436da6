#include "worker/agent/probe.h"

#include "base/loop/deadline.h"
#include "base/loop/task_group.h"
#include "rendezvous/wire/start_messages.h"

#include <fmt/format.h>
#include <optional>

namespace dtrun::agent {
namespace {

asio::awaitable<void> try_one(tcp::endpoint endpoint, Deadline deadline,
                              std::optional<std::string>& failure) {
    tcp::socket socket(co_await asio::this_coro::executor);
    DeadlineGuard guard(socket, deadline);
    const auto [error] = co_await socket.async_connect(endpoint, use_tuple);
    // An agent that holds a port for a rank resets each connection, perhaps before ours is made.
    if (!error || error == asio::error::connection_reset) co_return failure.reset();
    const bool late = error == asio::error::operation_aborted;
    failure = late ? "no answer" : error.message();
}

}  // namespace

asio::awaitable<Reached> try_addresses(Probe probe) {
    const auto executor = co_await asio::this_coro::executor;
    const Deadline deadline = after(std::chrono::milliseconds(probe.timeout_ms));
    std::vector<std::optional<std::string>> failures(probe.addresses.size(), "no address");
    TaskGroup tries(executor);
    for (std::size_t i = 0; i < failures.size(); ++i) {
        boost::system::error_code error;
        const auto address = asio::ip::make_address(probe.addresses[i], error);
        if (error) continue;
        tries.spawn(try_one(tcp::endpoint(address, probe.port), deadline, failures[i]));
    }
    co_await tries.join();
    Reached reached;
    for (std::size_t i = 0; i < failures.size(); ++i) {
        if (!failures[i])
            reached.addresses.push_back(probe.addresses[i]);
        else
            reached.why += fmt::format("{}{}: {}", reached.why.empty() ? "" : ", ",
                                       probe.addresses[i], *failures[i]);
    }
    co_return reached;
}

}  // namespace dtrun::agent
