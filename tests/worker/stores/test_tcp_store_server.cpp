#include "base/loop/deadline.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/support/catch.h"
#include "tests/support/other_user.h"
#include "tests/support/skip.h"
#include "tests/worker/stores/tcp_store_bytes.h"
#include "worker/stores/local_store.h"
#include "worker/stores/tcp_store_server.h"

#include <sys/socket.h>

namespace dtrun {

using namespace stores;
namespace {

using namespace torch;

/// A server on loopback, and its clients, on one thread.
class Scene {
public:
    explicit Scene(const std::string& address = "127.0.0.1") : server(context.get_executor()) {
        tcp::acceptor bound(context);
        const tcp::endpoint endpoint(asio::ip::make_address(address), 0);
        bound.open(endpoint.protocol());
        if (endpoint.address().is_v6()) bound.set_option(asio::ip::v6_only(false));
        bound.bind(endpoint);
        port = bound.local_endpoint().port();
        REQUIRE(server.listen(Fd(bound.release())));
    }
    ~Scene() {
        server.stop();
        bool joined = false;
        TaskGroup tasks(context.get_executor());
        tasks.spawn(join(joined));
        run_until([&] { return joined; });
        CHECK(joined);
    }

    tcp::socket connect() {
        tcp::socket socket(context);
        socket.connect({asio::ip::make_address("127.0.0.1"), port});
        return socket;
    }

    template <class Done>
    void run_until(Done done) {
        const Deadline limit = after(std::chrono::seconds(20));
        context.restart();
        while (!done() && Clock::now() < limit) context.run_one_for(std::chrono::milliseconds(100));
    }

    /// Exactly so many bytes; fewer if the connection ends.
    std::string read(tcp::socket& socket, std::size_t bytes) {
        std::string data(bytes, '\0');
        bool done = false;
        std::size_t got = 0;
        asio::async_read(socket, asio::buffer(data), [&](boost::system::error_code, std::size_t n) {
            got = n;
            done = true;
        });
        run_until([&] { return done; });
        const bool is_read = done;
        if (!is_read) {  // it may not write there any more
            socket.close();
            run_until([&] { return done; });
        }
        REQUIRE(is_read);
        data.resize(got);
        return data;
    }
    bool is_closed(tcp::socket& socket) { return read(socket, 1).empty(); }

    asio::io_context context;
    std::uint16_t port = 0;
    LocalStore first{context.get_executor()};
    LocalStore second{context.get_executor()};
    TcpStoreServer server;

private:
    asio::awaitable<void> join(bool& joined) {
        co_await server.join();
        joined = true;
    }
};

void send(tcp::socket& socket, const std::string& bytes) {
    asio::write(socket, asio::buffer(bytes));
}

TEST_CASE("nobody is served before the first generation", "[torch]") {
    Scene scene;
    tcp::socket client = scene.connect();
    CHECK(scene.is_closed(client));
}

TEST_CASE("another user of the machine is not served", "[torch]") {
    if (::geteuid() != 0) {
        skip_case("needs root to be somebody else");
        return;
    }
    Scene scene;
    scene.server.begin(scene.first, 2, {});
    OtherUser other([&] {
        const int socket = connect_to_port(scene.port);
        const std::string asks = kValidate + op(4, "/n", 1);
        if (::send(socket, asks.data(), asks.size(), MSG_NOSIGNAL) < 0) ::_exit(0);
        expect_to_be_turned_away(socket);
    });
    scene.run_until([&] { return other.has_ended(); });
    CHECK(other.exit_code() == 0);
    CHECK(scene.first.store().size() == 0);
}

TEST_CASE("a new generation ends connections and waits of the one before", "[torch]") {
    Scene scene;
    scene.server.begin(scene.first, 2, {});
    tcp::socket waiter = scene.connect(), setter = scene.connect();
    send(waiter, kValidate + op(13) + number<std::uint32_t>(77) + list(6, 1, {"/never"}));
    CHECK(scene.read(waiter, 4) == number<std::uint32_t>(77));
    scene.run_until([&] { return scene.server.waits().size() == 1; });
    const RankWait wait = scene.server.waits().at(0);
    CHECK(wait.pid == 77);
    CHECK(wait.rank == kNoRank);
    CHECK(wait.address.empty());
    CHECK(wait.what == "torch's store: key never");
    CHECK_FALSE(wait.starting);
    CHECK_FALSE(wait.hopeless);
    send(setter, kValidate + op(4, "/n", 1));
    CHECK(scene.read(setter, 8) == number<std::int64_t>(1));

    scene.server.begin(scene.second, 2, {});
    CHECK(scene.server.waits().empty());
    CHECK(scene.first.store().waiting() == 0);
    CHECK(scene.is_closed(waiter));
    CHECK(scene.is_closed(setter));
    tcp::socket fresh = scene.connect();
    send(fresh, kValidate + op(4, "/n", 1));
    CHECK(scene.read(fresh, 8) == number<std::int64_t>(1));
}

TEST_CASE("waiting for a rank that the job does not have is hopeless", "[torch]") {
    Scene scene;
    scene.server.begin(scene.first, 2, {});
    tcp::socket one = scene.connect(), two = scene.connect();
    send(one, kValidate + op(1, {"/default_pg/0//cpu//0/1", "a"}) +
                  list(6, 1, {"/default_pg/0//cpu//0/2"}));
    scene.run_until([&] { return scene.server.waits().size() == 1; });
    REQUIRE(scene.server.waits().size() == 1);
    CHECK(scene.server.waits().at(0).rank == Rank{1});
    CHECK(scene.server.waits().at(0).starting);
    CHECK(scene.server.waits().at(0).hopeless);
    CHECK(scene.server.waits().at(0).what == "torch's store: key default_pg/0//cpu//0/2");
    // The program has started more processes itself.
    send(two, kValidate + op(1, {"/default_pg/0//cpu//0/3", "a"}) + op(7));
    scene.read(two, 8);
    CHECK_FALSE(scene.server.waits().at(0).hopeless);
}

TEST_CASE("a client that does not read is waited for, without more and more memory", "[torch]") {
    Scene scene;
    scene.server.begin(scene.first, 1, {});
    tcp::socket client = scene.connect();
    const std::string value(8u << 20, 'x');
    send(client, kValidate);
    bool sent = false;
    std::string stream = op(1, {"/k", value});
    constexpr int kGets = 12;
    for (int i = 0; i < kGets; ++i) stream += op(3, {"/k"});
    asio::async_write(client, asio::buffer(stream),
                      [&](boost::system::error_code error, std::size_t) { sent = !error; });
    scene.run_until([&] { return sent; });
    REQUIRE(sent);
    tcp::socket other = scene.connect();
    send(other, kValidate + op(4, "/n", 1));
    CHECK(scene.read(other, 8) == number<std::int64_t>(1));
    for (int i = 0; i < kGets; ++i) CHECK((scene.read(client, value.size() + 8) == text(value)));
}

TEST_CASE("what nobody of torch's says ends the connection", "[torch]") {
    Scene scene;
    scene.server.begin(scene.first, 1, {});
    tcp::socket client = scene.connect();
    send(client, "GET / HTTP/1.1\r\n\r\n");
    CHECK(scene.is_closed(client));
}

TEST_CASE("an address of this machine is known in each of its spellings", "[torch]") {
    Scene scene("::");
    scene.server.begin(scene.first, 1, {});
    tcp::socket client = scene.connect();  // the server sees ::ffff:127.0.0.1
    send(client, kValidate + list(6, 1, {"/never"}));
    scene.run_until([&] { return !scene.server.waits().empty(); });
    CHECK(scene.server.waits().at(0).address.empty());
}

TEST_CASE("the connections of a 1.13 client tell DELETE_KEY from APPEND", "[torch]") {
    Scene scene;
    scene.server.begin(scene.first, 1, {});
    tcp::socket client = scene.connect();
    send(client, op(0, {"/k", ""}) + op(3, "/n", 1));
    CHECK(scene.read(client, 8) == number<std::int64_t>(1));
    tcp::socket idle = scene.connect();
    send(client, op(8, {"/k"}));
    CHECK(scene.read(client, 8) == number<std::int64_t>(1));
}

}  // namespace
}  // namespace dtrun
