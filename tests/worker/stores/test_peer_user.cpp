#include "base/loop/local_acceptor.h"
#include "base/loop/peer_user.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/other_user.h"
#include "tests/support/skip.h"
#include "worker/stores/local_store.h"
#include "worker/stores/remote_processes.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <optional>

namespace dtrun {

using namespace stores;
namespace {

/// Two agents of a job, on one machine.
struct TwoAgents {
    explicit TwoAgents(asio::io_context& context) : io(context), store(context.get_executor()) {
        there.answer_for("127.0.0.1");
    }
    /// Whose the connection is whose accepted end is `server`, as the agent at the other end says.
    PeerUser whose(const tcp::socket& server) {
        std::optional<PeerUser> user;
        here.ask(server.remote_endpoint(), server.local_endpoint(),
                 [&user](PeerUser told) { user = told; });
        io.restart();
        io.poll();
        return user.value_or(PeerUser::unknown);
    }
    asio::io_context& io;
    LocalStore store;
    RemoteProcesses here{store}, there{store};
};

}  // namespace

TEST_CASE("the user at the other end of a connection within this machine is known", "[stores]") {
    asio::io_context io;
    auto [client, server] = socket_pair(io);
    CHECK(peer_user(server) == PeerUser::ours);
    CHECK(peer_user(client) == PeerUser::ours);
}

TEST_CASE("IPv4 over a socket for IPv6 makes no difference", "[stores]") {
    asio::io_context io;
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket client(io, tcp::v6());
    const auto mapped =
        asio::ip::make_address_v6(asio::ip::v4_mapped, asio::ip::address_v4::loopback());
    client.connect(tcp::endpoint(mapped, acceptor.local_endpoint().port()));
    tcp::socket server = acceptor.accept();
    CHECK(peer_user(server) == PeerUser::ours);
    CHECK(peer_user(client) == PeerUser::ours);
}

TEST_CASE("a closed connection has nobody at its other end", "[stores]") {
    asio::io_context io;
    auto [client, server] = socket_pair(io);
    client.set_option(asio::socket_base::linger(true, 0));
    client.close();
    CHECK(peer_user(server) == PeerUser::gone);
}

TEST_CASE("nobody is taken for root because he has hung up", "[stores]") {
    asio::io_context io;
    auto [client, server] = socket_pair(io);
    asio::write(client, asio::buffer("bytes", 5));
    client.close();  // in order: the kernel keeps the connection for a while, as nobody's
    CHECK(peer_user(server) == PeerUser::gone);
}

TEST_CASE("nobody is taken for us where the kernel cannot be asked", "[stores]") {
    asio::io_context io;
    auto [client, server] = socket_pair(io);
    (void)fmt::format("{:08X}", 1U);  // a sanitizer needs descriptors to look at fmt's types first
    // Out of descriptors, as a crowd of strangers may make us, neither way is open.
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const PeerUser found = peer_user(server);
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(found == PeerUser::unknown);
    CHECK(describe(found).find("nobody can tell") != std::string_view::npos);
    CHECK(peer_user(server) == PeerUser::ours);
}

TEST_CASE("the agent of another host says whose a connection from there is", "[stores]") {
    asio::io_context io;
    TwoAgents agents(io);
    auto [client, server] = socket_pair(io);
    auto [second_client, second_server] = socket_pair(io);
    CHECK(agents.whose(server) == PeerUser::ours);
    CHECK(agents.whose(second_server) == PeerUser::ours);
    CHECK(agents.whose(server) == PeerUser::ours);
    client.set_option(asio::socket_base::linger(true, 0));
    const tcp::endpoint gone = client.local_endpoint();
    client.close();
    std::optional<PeerUser> user;
    agents.here.ask(gone, server.local_endpoint(), [&user](PeerUser told) { user = told; });
    io.restart();
    io.poll();
    CHECK(user == PeerUser::other);
}

TEST_CASE("another user is not taken for us", "[stores]") {
    if (::geteuid() != 0) {
        skip_case("needs root to be somebody else");
        return;
    }
    asio::io_context io;
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    const OtherUser other([&] { connect_to_port(acceptor.local_endpoint().port()); });
    tcp::socket server = acceptor.accept();
    CHECK(peer_user(server) == PeerUser::other);
    CHECK(TwoAgents(io).whose(server) == PeerUser::other);
}

TEST_CASE("a store on loopback is there for its own user alone", "[stores]") {
    if (::geteuid() != 0) {
        skip_case("needs root to be somebody else");
        return;
    }
    asio::io_context io;
    LocalAcceptor acceptor(io.get_executor(), "a store");
    const std::uint16_t port = acceptor.listen().value();
    OtherUser other([&] { expect_to_be_turned_away(connect_to_port(port)); });
    std::optional<std::optional<tcp::socket>> accepted;
    asio::co_spawn(io, store(acceptor.next(), accepted), [](std::exception_ptr) {});
    while (!other.has_ended()) io.run_one_for(std::chrono::milliseconds(10));
    CHECK(other.exit_code() == 0);
    CHECK_FALSE(accepted.has_value());
    tcp::socket ours(io);
    ours.connect({asio::ip::address_v4::loopback(), port});
    while (!accepted) io.run_one();
    CHECK((*accepted)->remote_endpoint() == ours.local_endpoint());
}

}  // namespace dtrun
