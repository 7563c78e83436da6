#include "launcher/uplink.h"

#include "rendezvous/messages.h"
#include "tests/support/loop.h"

#include <catch2/catch.hpp>

namespace dtrun {
namespace {

struct Events final : UplinkEvents {
    void daemon_assigned(const Assign&) override {}
    void daemon_proposed(const Propose&) override {}
    void daemon_stopped(const Stop& stop) override { said = "stopped: " + stop.why; }
    Result<void> daemon_exchanged(const FrameView&) override { return {}; }
    void daemon_is_back() override { ++connections; }
    Heartbeat progress() override { return {}; }
    void daemon_lost(const Error& why) override { said = "lost: " + why.message; }
    int connections = 0;
    std::string said;
};

/// A daemon that goes away, somebody else who has its port meanwhile, and the daemon again.
asio::awaitable<bool> serve_with_a_gap(tcp::acceptor& acceptor, Secret secret, Uplink& uplink) {
    const auto executor = co_await asio::this_coro::executor;
    TaskGroup member(executor);
    member.spawn(uplink.run(Enter{}));
    const SecretOf secret_of = [secret](const JobId&) { return std::optional(secret); };
    const Deadline deadline = after(std::chrono::seconds(5));
    {
        tcp::socket daemon = co_await acceptor.async_accept(asio::use_awaitable);
        const auto known = co_await authenticate_client(daemon, secret_of, false, deadline);
        CHECK(known.has_value());
    }
    for (const std::size_t bytes : {40, 0}) {
        tcp::socket squatter = co_await acceptor.async_accept(asio::use_awaitable);
        const std::string nonsense(bytes, 'x');
        const auto buffer = asio::buffer(nonsense);
        co_await asio::async_write(squatter, buffer, use_tuple);
    }
    tcp::socket daemon = co_await acceptor.async_accept(asio::use_awaitable);
    const auto known = co_await authenticate_client(daemon, secret_of, false, deadline);
    CHECK(known.has_value());
    const Bytes stop = encode(Stop{15, 0, "that is all"});
    const auto buffer = asio::buffer(stop);
    co_await asio::async_write(daemon, buffer, use_tuple);
    co_await member.join();
    co_return true;
}

}  // namespace

TEST_CASE("who takes a daemon's port while it is away does not end its jobs", "[uplink]") {
    asio::io_context io;
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    const Secret secret = Secret::random();
    DaemonTarget target;
    target.addresses = {"127.0.0.1"};
    target.port = acceptor.local_endpoint().port();
    target.credentials = {random_job_id(), secret};
    Events events;
    Uplink uplink(io.get_executor(), target, {}, events);
    run_to_end(io, serve_with_a_gap(acceptor, secret, uplink));
    CHECK(events.said == "stopped: that is all");
    CHECK(events.connections == 2);
}

}  // namespace dtrun
