#include "launcher/head/daemon_link.h"

#include "launcher/head/head.h"
#include "launcher/head/job_server.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/request.h"
#include "rendezvous/wire/start_messages.h"
#include "rendezvous/wire/store_request.h"
#include "tests/loopback/head_parts.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/messages_of.h"

#include <csignal>

namespace dtrun {

using namespace plan;

using namespace head;
namespace {

struct Events final : DaemonLinkEvents {
    Result<void> daemon_orders(const FrameView&) override { return {}; }
    void daemon_stopped(const Stop& stop) override { said = "stopped: " + stop.why; }
    Result<void> daemon_exchanged(const FrameView&) override { return {}; }
    void daemon_is_back() override { ++connections; }
    Heartbeat progress() override { return {}; }
    void daemon_lost(const Error& why) override { said = "lost: " + why.message; }
    int connections = 0;
    std::string said;
};

/// The daemon at its port.
struct FakeDaemon {
    FakeDaemon() : acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {}

    DaemonTarget target() const {
        DaemonTarget target;
        target.addresses = {"127.0.0.1"};
        target.port = acceptor.local_endpoint().port();
        target.credentials = {random_job_id(), secret};
        return target;
    }
    /// The next connection, as far as the handshake.
    asio::awaitable<tcp::socket> accept() {
        tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
        const SecretOf secret_of = [this](const JobId&) { return std::optional(secret); };
        const Deadline deadline = after(std::chrono::seconds(5));
        const auto known = co_await authenticate_client(socket, secret_of, false, deadline);
        CHECK(known.has_value());
        co_return socket;
    }

    asio::io_context io;
    tcp::acceptor acceptor;
    const Secret secret = Secret::random();
};

asio::awaitable<void> end_job(tcp::socket& socket) {
    const Bytes stop = encode(Stop{15, 0, "that is all"});
    const auto buffer = asio::buffer(stop);
    co_await asio::async_write(socket, buffer, use_tuple);
    socket.close();
}

/// A daemon that goes away, somebody else who has its port meanwhile, and the daemon again.
asio::awaitable<bool> serve_with_a_gap(FakeDaemon& daemon, DaemonLink& link) {
    TaskGroup member(daemon.io.get_executor());
    member.spawn(link.run(Enter{}));
    { const tcp::socket first = co_await daemon.accept(); }
    for (const std::size_t bytes : {40, 0}) {
        tcp::socket squatter = co_await daemon.acceptor.async_accept(asio::use_awaitable);
        const std::string nonsense(bytes, 'x');
        const auto buffer = asio::buffer(nonsense);
        co_await asio::async_write(squatter, buffer, use_tuple);
    }
    tcp::socket again = co_await daemon.accept();
    co_await end_job(again);
    co_await member.join();
    co_return true;
}

/// A daemon that says nothing over its first connection, which stays open.
asio::awaitable<bool> serve_after_silence(FakeDaemon& daemon, DaemonLink& link) {
    TaskGroup member(daemon.io.get_executor());
    member.spawn(link.run(Enter{}));
    const tcp::socket silent = co_await daemon.accept();
    tcp::socket again = co_await daemon.accept();
    co_await end_job(again);
    co_await member.join();
    co_return true;
}

/// A daemon that has said how patient it is, and then says nothing for longer than its member would wait.
asio::awaitable<bool> serve_with_patience(FakeDaemon& daemon, DaemonLink& link) {
    TaskGroup member(daemon.io.get_executor());
    member.spawn(link.run(Enter{}));
    tcp::socket socket = co_await daemon.accept();
    Heartbeat heartbeat;
    heartbeat.timeout_ms = 60'000;
    const Bytes beat = encode(heartbeat);
    const auto buffer = asio::buffer(beat);
    co_await asio::async_write(socket, buffer, use_tuple);
    Timer silence(daemon.io.get_executor(), std::chrono::milliseconds(1'200));
    co_await silence.async_wait(use_tuple);
    co_await end_job(socket);
    co_await member.join();
    co_return true;
}

/// The next frame that is no heartbeat.
asio::awaitable<std::pair<FrameType, std::string>> next_of(Link& link) {
    for (;;) {
        const auto frame = link.next();
        REQUIRE(frame.has_value());
        if (!*frame) {
            const auto received = co_await link.receive();
            REQUIRE(received.has_value());
        } else if ((*frame)->type != FrameType::heartbeat) {
            co_return std::pair((*frame)->type, std::string((*frame)->payload));
        }
    }
}

/// The head of `dtrun join`; a test plays its agent and its daemon.
struct JoinedHead {
    explicit JoinedHead(FakeDaemon& daemon)
        : spec(spec_of(daemon)),
          hosts(spec),
          ends(socket_pair(daemon.io)),
          agent(Connection{std::move(ends.first), std::nullopt}),
          output(daemon.io.get_executor(), [] {}),
          head(daemon.io, spec, hosts, output, [] {}) {}
    static JobSpec spec_of(const FakeDaemon& daemon) {
        Options options;
        options.world_size = 1;
        options.program = {"/bin/true"};
        options.stdin_target.kind = StdinTarget::Kind::none;
        auto spec = make_job_spec(std::move(options), {}, "/");
        REQUIRE(spec.has_value());
        spec->options.join.emplace();
        spec->daemon = daemon.target();
        return std::move(*spec);
    }
    asio::awaitable<void> run() {
        head.admit(Connection{std::move(ends.second), std::nullopt});
        co_await head.run();
    }

    JobSpec spec;
    Hosts hosts;
    std::pair<tcp::socket, tcp::socket> ends;
    Link agent;
    loopback::MemoryOutput output;
    Head head;
};

/// Requests of an agent that does not know of the newest connection to the daemon: it says them again then.
asio::awaitable<bool> ask_over_an_old_connection(FakeDaemon& daemon, JoinedHead& it) {
    TaskGroup job(daemon.io.get_executor());
    job.spawn(it.run());
    it.agent.send(encode(Join{}));
    { const tcp::socket first = co_await daemon.accept(); }
    tcp::socket second = co_await daemon.accept();
    Link link(Connection{std::move(second), std::nullopt});
    for (const std::uint64_t connection : {1, 2}) {
        const auto [type, payload] = co_await next_of(it.agent);
        CHECK(type == FrameType::heard);
        CHECK(decode<Heard>(payload)->number == connection);
    }
    const StoreRequest set{.op = Op::set, .keys = {"key"}, .values = {"value"}};
    for (const std::uint64_t connection : {1, 2}) {
        it.agent.send(encode(Heard{connection}));
        it.agent.send(encode_request({5, connection, 0}, set, 0));
    }
    std::pair<FrameType, std::string> frame(FrameType::enter, "");
    while (frame.first != FrameType::request) frame = co_await next_of(link);
    CHECK(decode_request(frame.second)->header.id == 2);
    it.agent.send(encode(Done{}));
    it.head.signalled(SIGTERM);
    link.close();
    co_await job.join();
    co_await it.head.join();
    co_return true;
}

}  // namespace

TEST_CASE("what an agent says before it knows of a connection to the daemon does not go over it",
          "[daemon_link]") {
    FakeDaemon daemon;
    JoinedHead it(daemon);
    run_to_end(daemon.io, ask_over_an_old_connection(daemon, it));
}

TEST_CASE("every message of a daemon to its members has one receiver", "[daemon_link]") {
    asio::io_context io;
    Events events;
    const DaemonLink link(io.get_executor(), {}, {}, events);
    CHECK(types_with([&link](FrameType type) { return link.router().has(type); }) ==
          messages_of("daemon → member"));
}

TEST_CASE("who takes a daemon's port while it is away does not end its jobs", "[daemon_link]") {
    FakeDaemon daemon;
    Events events;
    DaemonLink link(daemon.io.get_executor(), daemon.target(), {}, events);
    run_to_end(daemon.io, serve_with_a_gap(daemon, link));
    CHECK(events.said == "stopped: that is all");
    CHECK(events.connections == 2);
}

TEST_CASE("a member connects again to a daemon that says nothing while its machine answers",
          "[daemon_link]") {
    FakeDaemon daemon;
    Events events;
    DaemonLinkOptions options;
    options.heartbeat_timeout = std::chrono::milliseconds(200);
    DaemonLink link(daemon.io.get_executor(), daemon.target(), options, events);
    run_to_end(daemon.io, serve_after_silence(daemon, link));
    CHECK(events.said == "stopped: that is all");
    CHECK(events.connections == 2);
}

TEST_CASE("a member is as patient as its daemon was told to be", "[daemon_link]") {
    FakeDaemon daemon;
    Events events;
    DaemonLinkOptions options;
    options.heartbeat_timeout = std::chrono::milliseconds(200);
    DaemonLink link(daemon.io.get_executor(), daemon.target(), options, events);
    run_to_end(daemon.io, serve_with_patience(daemon, link));
    CHECK(events.said == "stopped: that is all");
    CHECK(events.connections == 1);
}

TEST_CASE("a node whose port is taken serves no job, and nothing of it runs on", "[daemon_link]") {
    FakeDaemon somebody;
    DaemonTarget target = somebody.target();
    target.serve = somebody.secret;
    const auto server = JobServer::open(somebody.io.get_executor(), target, Options());
    REQUIRE(server.has_value());
    CHECK(*server == nullptr);
    somebody.io.poll();
    CHECK(somebody.io.stopped());
}

}  // namespace dtrun
