#include "base/loop/task_group.h"
#include "rendezvous/links/client.h"
#include "rendezvous/links/server.h"
#include "rendezvous/wire/handshake.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

namespace dtrun {
namespace {

constexpr std::chrono::milliseconds kShort{300};

/// A server for one job, and how many it has let in.
struct TestServer {
    explicit TestServer(asio::io_context& loop, ServerOptions options = {})
        : io(loop),
          server(
              io.get_executor(),
              [this](const JobId& id) { return id == job ? std::optional(secret) : std::nullopt; },
              [this](const JobId&, Connection peer) { admitted.push_back(std::move(peer)); },
              options) {
        port = server.listen({"127.0.0.1"}, 0).value();
    }
    ~TestServer() { run_to_end(io, ended()); }
    asio::awaitable<bool> ended() {
        server.stop();
        co_await server.join();
        co_return true;
    }

    asio::io_context& io;
    JobId job = random_job_id();
    Secret secret = Secret::random();
    std::vector<Connection> admitted;
    Server server;
    std::uint16_t port = 0;
};

Result<Connection> connect(asio::io_context& io, TestServer& server, JobId job, Secret secret,
                           std::vector<std::string> addresses = {"127.0.0.1"},
                           bool encrypt = false) {
    return run_to_end(io, connect_to_server(std::move(addresses), server.port,
                                            Credentials{job, secret, encrypt}, after(kShort)));
}

asio::awaitable<Result<void>> as_server(tcp::socket& socket, const Secret& secret) {
    auto secret_of = [&secret](const JobId&) { return std::optional(secret); };
    const auto done = co_await authenticate_client(socket, secret_of, false, after(kShort));
    if (!done) co_return std::unexpected(done.error());
    co_return Result<void>{};
}

/// Both sides of a handshake, without a network.
struct Sides {
    const JobId job = random_job_id();
    const Secret secret = Secret::random();
    ProtocolVersions clients{}, servers{};
    Handshake client{job, secret, {.versions = clients}};
    Handshake server{server_of(job, secret, servers)};

    static Handshake server_of(const JobId& job, const Secret& secret,
                               ProtocolVersions versions = {}) {
        return Handshake(
            [=](const JobId& id) { return id == job ? std::optional(secret) : std::nullopt; },
            {.versions = versions});
    }
};

/// A side hears this, byte by byte. \return how far that went well, and why it has ended
std::pair<std::size_t, Result<void>> hear(Handshake& side, std::string_view bytes) {
    Result<void> fits;
    std::size_t heard = 0;
    for (; heard < bytes.size() && fits && !side.room().empty(); ++heard) {
        side.room().front() = static_cast<std::uint8_t>(bytes[heard]);
        fits = side.come(1);
    }
    return {heard, fits};
}

/// The four records in turn. \param change  what becomes of them on the way
bool meet(Sides& sides, const std::function<void(int record, Bytes&)>& change) {
    for (int record = 0; record < 4; ++record) {
        const bool from_client = record % 2 == 0;
        Bytes said = (from_client ? sides.client : sides.server).take_output();
        change(record, said);
        if (!hear(from_client ? sides.server : sides.client, said).second) return false;
    }
    return sides.client.room().empty() && sides.server.room().empty();
}

/// A connection from this address that says nothing.
tcp::socket stranger(asio::io_context& io, const TestServer& server, const char* from) {
    tcp::socket socket(io, tcp::v4());
    socket.bind(tcp::endpoint(asio::ip::make_address(from), 0));
    socket.connect(tcp::endpoint(asio::ip::address_v4::loopback(), server.port));
    socket.non_blocking(true);
    return socket;
}

/// Which of them the server has closed.
std::vector<bool> closed(asio::io_context& io, std::vector<tcp::socket>& sockets) {
    io.restart();
    io.run_for(std::chrono::milliseconds(100));
    std::vector<bool> all;
    for (tcp::socket& socket : sockets) {
        char byte;
        boost::system::error_code error;
        socket.read_some(asio::buffer(&byte, 1), error);
        all.push_back(error == asio::error::eof || error == asio::error::connection_reset);
    }
    return all;
}

/// A server that is full a few times, and then lets in.
asio::awaitable<void> close_then_serve(tcp::acceptor& acceptor, Secret secret, int times) {
    for (int i = 0; i < times; ++i) {
        tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
        socket.close();
    }
    tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
    const auto done = co_await as_server(socket, secret);
    CHECK(done.has_value());
}

}  // namespace

TEST_CASE("who knows the secret is let in", "[handshake]") {
    asio::io_context io;
    TestServer server(io);
    const auto socket = connect(io, server, server.job, server.secret);
    REQUIRE(socket.has_value());
    io.restart();
    io.poll();
    CHECK(server.admitted.size() == 1);
}

TEST_CASE("a wrong secret and an unknown job are refused in the same words", "[handshake]") {
    asio::io_context io;
    TestServer server(io);
    const auto wrong = connect(io, server, server.job, Secret::random());
    const auto unknown = connect(io, server, random_job_id(), server.secret);
    REQUIRE_FALSE(wrong.has_value());
    REQUIRE_FALSE(unknown.has_value());
    CHECK(wrong.error().code == Errc::denied);
    CHECK(wrong.error().message == unknown.error().message);
    CHECK(server.admitted.empty());
}

TEST_CASE("the first address that proves itself wins, dead ones are named when none does",
          "[handshake]") {
    asio::io_context io;
    TestServer server(io);
    CHECK(connect(io, server, server.job, server.secret, {"127.0.0.9", "127.0.0.1"}).has_value());
    const auto failed = connect(io, server, server.job, server.secret, {"127.0.0.8", "nonsense"});
    REQUIRE_FALSE(failed.has_value());
    CHECK(failed.error().message.find("127.0.0.8 (Connection refused)") != std::string::npos);
    CHECK(failed.error().message.find("nonsense (not a numeric address)") != std::string::npos);
}

TEST_CASE("a client that says nothing is cut off", "[handshake]") {
    asio::io_context io;
    TestServer server(io, {.authentication_timeout = std::chrono::milliseconds(50)});
    tcp::socket silent(io);
    silent.connect(tcp::endpoint(asio::ip::address_v4::loopback(), server.port));
    io.restart();
    io.run_for(std::chrono::milliseconds(200));
    char byte;
    boost::system::error_code error;
    silent.non_blocking(true);
    silent.read_some(asio::buffer(&byte, 1), error);
    CHECK(error == asio::error::eof);
    CHECK(server.admitted.empty());
}

TEST_CASE("a crowd of strangers keeps nobody out: some of them make room", "[handshake]") {
    asio::io_context io;
    TestServer server(io, {.unauthenticated_max = 8});
    std::vector<tcp::socket> crowd;
    for (const char* from : {"127.0.1.1", "127.0.1.2", "127.0.1.3", "127.0.1.4", "127.0.1.5"})
        for (int i = 0; i < 2; ++i) crowd.push_back(stranger(io, server, from));
    const auto before = closed(io, crowd);
    CHECK(std::ranges::count(before, true) == 2);
    CHECK_FALSE(before.back());  // nobody has come since
    CHECK(connect(io, server, server.job, server.secret).has_value());
    CHECK(std::ranges::count(closed(io, crowd), true) == 3);
}

TEST_CASE("strangers of one address have a share, and displace only each other", "[handshake]") {
    asio::io_context io;
    TestServer server(io, {.unauthenticated_max = 8});
    std::vector<tcp::socket> crowd;
    crowd.push_back(stranger(io, server, "127.0.1.1"));
    for (int i = 0; i < 4; ++i) crowd.push_back(stranger(io, server, "127.0.1.2"));
    const auto now = closed(io, crowd);
    CHECK_FALSE(now.front());
    CHECK(std::ranges::count(now, true) == 2);
}

TEST_CASE("where more come than are served, those who wait longest are not all closed",
          "[handshake]") {
    asio::io_context io;
    TestServer server(io, {.unauthenticated_max = 32});
    std::vector<tcp::socket> crowd;
    for (int i = 0; i < 17; ++i) crowd.push_back(stranger(io, server, "127.0.1.1"));
    const auto now = closed(io, crowd);
    CHECK(std::ranges::count(now, true) == 9);
    CHECK(std::count(now.begin(), now.begin() + 9, false) > 0);
}

TEST_CASE("who is closed before anything was proved tries again until its deadline",
          "[handshake]") {
    asio::io_context io;
    tcp::acceptor full(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    const JobId job = random_job_id();
    const Secret secret = Secret::random();
    const auto port = full.local_endpoint().port();
    asio::co_spawn(io, close_then_serve(full, secret, 2), [](std::exception_ptr) {});
    const auto met = run_to_end(
        io, connect_to_server({"127.0.0.1"}, port, {job, secret}, after(std::chrono::seconds(5))));
    CHECK(met.has_value());

    // But not where nobody listens.
    full.close();
    const Deadline limit = after(std::chrono::minutes(1));
    const auto nobody =
        run_to_end(io, connect_to_server({"127.0.0.1"}, port, {job, secret}, limit));
    REQUIRE_FALSE(nobody.has_value());
    CHECK(nobody.error().code == Errc::unreachable);
}

TEST_CASE("no beginning of a handshake lets anybody in", "[handshake]") {
    Bytes said[2];
    Sides whole;
    REQUIRE(meet(whole, [&said](int record, Bytes& bytes) { said[record % 2] += bytes; }));
    for (std::size_t ended : {std::size_t(0), std::size_t(55), std::size_t(56), std::size_t(87)}) {
        Handshake server = Sides::server_of(whole.job, whole.secret);
        CHECK(hear(server, std::string_view(said[0]).substr(0, ended)).second.has_value());
        CHECK_FALSE(server.room().empty());
    }
    CHECK(whole.server.job() == whole.job);
    CHECK(hear(whole.server, "a frame").first == 0);  // is for others
    CHECK(said[0].size() == 56 + 32);
    CHECK(said[1].size() == 40 + 32);
}

TEST_CASE("a recorded handshake cannot be played again", "[handshake]") {
    Bytes recorded;
    Sides sides;
    REQUIRE(meet(sides, [&recorded](int record, Bytes& bytes) {
        if (record % 2 == 0) recorded += bytes;
    }));
    Handshake victim = Sides::server_of(sides.job, sides.secret);
    CHECK(hear(victim, recorded).second.error().code == Errc::denied);
}

TEST_CASE("every byte of both hellos is under both proofs, version and flags among them",
          "[handshake]") {
    for (const auto& [record, bytes] : {std::pair(0, 56), std::pair(1, 40), std::pair(2, 32)})
        for (int at = 0; at < bytes; ++at) {
            Sides sides;
            CHECK_FALSE(meet(sides, [&, record = record](int which, Bytes& said) {
                if (which == record) said[static_cast<std::size_t>(at)] ^= 1;
            }));
            CHECK_FALSE(sides.client.room().empty());
            CHECK_FALSE(sides.server.room().empty());
        }
}

TEST_CASE("a server that does not know the secret, or speaks another protocol, is not trusted",
          "[handshake]") {
    for (const auto& [says, why] :
         {std::pair(std::string(40, 'x'), "does not speak dtrun's protocol"),
          {"dtrn" + std::string(36, '\0'), "speaks protocol 0, this is 3"}}) {
        Sides sides;
        CHECK(hear(sides.client, says).second.error().message ==
              fmt::format("the other side {}", why));
    }
    Sides sides;
    CHECK_FALSE(meet(sides, [](int record, Bytes& bytes) { bytes[0] ^= record == 3 ? 1 : 0; }));
    CHECK_FALSE(sides.client.room().empty());
}

TEST_CASE("a stranger takes home nothing on which to try secrets", "[handshake]") {
    for (const bool job_exists : {true, false}) {
        CAPTURE(job_exists);
        Sides sides;
        const ClientHello hello{kProtocolVersion, 0, job_exists ? sides.job : random_job_id(), {}};
        CHECK(hear(sides.server, as_text(encode_hello(hello))).second.has_value());
        CHECK(sides.server.take_output().size() == 40);  // a nonce, and no proof
        CHECK(hear(sides.server, std::string(32, 'x')).second.error().code == Errc::denied);
        CHECK(sides.server.take_output() == std::string(32, '\0'));
    }
}

TEST_CASE("a client of an earlier version learns from the server which version it speaks",
          "[handshake]") {
    Sides sides;
    CHECK_FALSE(
        hear(sides.server, as_text(encode_hello({2, 0, sides.job, {}}))).second.has_value());
    const Bytes answer = sides.server.take_output();
    REQUIRE(answer.size() == 72);  // as much as it waits for
    CHECK(answer.substr(0, 6) == std::string("dtrn\0\3", 6));
    CHECK(answer.substr(40) == std::string(32, '\0'));
}

TEST_CASE("sides of neighbouring versions meet, and those too far apart say so", "[handshake]") {
    const auto met = [](ProtocolVersions clients, ProtocolVersions servers) {
        Sides sides{.clients = clients, .servers = servers};
        return meet(sides, [](int, Bytes&) {});
    };
    CHECK(met({.newest = 8, .oldest = 7}, {.newest = 7, .oldest = 6}));
    CHECK(met({.newest = 7, .oldest = 6}, {.newest = 8, .oldest = 7}));
    CHECK_FALSE(met({.newest = 9, .oldest = 8}, {.newest = 7, .oldest = 6}));
    CHECK_FALSE(met({.newest = 7, .oldest = 6}, {.newest = 9, .oldest = 8}));
}

TEST_CASE("who was refused is not let in by what it says later", "[handshake]") {
    Sides sides;
    const ClientHello encrypted{kProtocolVersion, kFlagEncrypt, sides.job, {}};
    CHECK_FALSE(hear(sides.server, as_text(encode_hello(encrypted))).second.has_value());
    // Its proof was never made, and would be zeros.
    CHECK(hear(sides.server, std::string(56, '\0')).second.error().code == Errc::denied);
    CHECK_FALSE(sides.server.room().empty());
}

TEST_CASE("encryption is had by both sides or by none", "[handshake]") {
    for (const bool server_wants : {false, true}) {
        for (const bool client_wants : {false, true}) {
            CAPTURE(server_wants, client_wants);
            asio::io_context io;
            TestServer server(io, {.encrypt = server_wants});
            const auto met =
                connect(io, server, server.job, server.secret, {"127.0.0.1"}, client_wants);
            io.restart();
            io.poll();
            CHECK(met.has_value() == (server_wants == client_wants));
            CHECK(server.admitted.size() == (met.has_value() ? 1 : 0));
            if (met) CHECK(met->sealing.has_value() == client_wants);
            if (!met) CHECK(met.error().message.find("(--encrypt)") != std::string::npos);
        }
    }
}

TEST_CASE("an encrypted connection carries frames of any size, and not in the clear",
          "[handshake]") {
    asio::io_context io;
    TestServer server(io, {.encrypt = true});
    auto met = connect(io, server, server.job, server.secret, {"127.0.0.1"}, true);
    REQUIRE(met.has_value());
    io.restart();
    io.poll();
    REQUIRE(server.admitted.size() == 1);
    Link client(std::move(*met)), peer(std::move(server.admitted[0]));
    TaskGroup tasks(io.get_executor());
    tasks.spawn(client.run_writer());
    tasks.spawn(peer.run_writer());
    const std::string large(100'000, 'x');
    client.send(encode_frame(FrameType::join, "hello"));
    client.send_soon(FrameType::request, large);
    for (const std::string& expected : {std::string("hello"), large}) {
        Result<std::optional<FrameView>> frame = std::nullopt;
        while (frame && !*frame) {
            REQUIRE(run_to_end(io, peer.receive()).has_value());
            frame = peer.next();
        }
        REQUIRE(frame.has_value());
        CHECK((*frame)->payload == expected);
    }
    client.close();
    peer.close();
    run_to_end(io, [](TaskGroup& group) -> asio::awaitable<bool> {
        co_await group.join();
        co_return true;
    }(tasks));
}

TEST_CASE("an encrypted record that is changed, repeated or left out is refused", "[handshake]") {
    Key key{};
    random_bytes(key);
    const auto records = [&key] {
        Seal seal(key);
        std::vector<Bytes> made(3);
        for (Bytes& record : made) seal.seal("the frame's bytes", record);
        CHECK(made[0].find("frame") == std::string::npos);
        return made;
    };
    const auto opens = [&key](const Bytes& bytes) {
        Seal seal(key);
        Bytes plain;
        std::string_view sealed(bytes);
        return seal.open(sealed, plain).has_value();
    };
    auto made = records();
    CHECK(opens(made[0] + made[1] + made[2]));
    CHECK_FALSE(opens(made[0] + made[0]));
    CHECK_FALSE(opens(made[0] + made[2]));
    for (std::size_t at : {std::size_t(1), std::size_t(2), made[0].size() - 1}) {
        Bytes changed = made[0];
        changed[at] = static_cast<char>(changed[at] ^ 1);
        changed += made[1];
        CHECK_FALSE(opens(changed));
    }
    CHECK_FALSE(opens(Bytes(2, '\0') + made[0]));
    CHECK_FALSE(opens("\xff\xff" + made[0]));
}

TEST_CASE("a hello that is not ours is refused before anything else is looked at", "[handshake]") {
    const ClientHello hello{1, 0, random_job_id(), {}};
    auto bytes = encode_hello(hello);
    CHECK(decode_hello(bytes).has_value());
    bytes[7] = 2;  // a flag of the future
    CHECK_FALSE(decode_hello(bytes).has_value());
    bytes[7] = 0;
    bytes[0] = 'G';
    CHECK(decode_hello(bytes).error().code == Errc::invalid_input);
}

}  // namespace dtrun
