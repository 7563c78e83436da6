#include "rendezvous/asking/direct_store_server.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/store_request.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/other_user.h"
#include "tests/support/skip.h"

#include <unistd.h>
#include <memory>
#include <string>
#include <vector>

namespace dtrun {
namespace {

constexpr std::uint64_t kProgram = 5;

/// The root of a job's tree, with one agent, whose answers are counted.
class RootHere final : private Outbox {
public:
    explicit RootHere(asio::io_context& io)
        : io_(io), server_(io.get_executor(), static_cast<Outbox&>(*this)), hub_(server_, {}) {
        hub_.begin(1, 1);
        server_.use(hub_, timer_);
        name_ = server_.open().value();
    }
    ~RootHere() {
        for (auto& link : programs_) link->close();
        run_to_end(io_, end());
    }

    Link& connect() {
        Unix::socket socket(io_);
        socket.connect(Unix::endpoint(std::string(1, '\0') + name_.substr(1)));
        programs_.push_back(std::make_unique<Link>(std::move(socket)));
        tasks_.spawn(programs_.back()->run_writer());
        return *programs_.back();
    }
    /// From another machine, which has proved that it may.
    Link& connect_from_afar() {
        tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        tcp::socket socket(io_);
        socket.connect(acceptor.local_endpoint());
        server_.admit({acceptor.accept(), std::nullopt});
        programs_.push_back(std::make_unique<Link>(Connection{std::move(socket), std::nullopt}));
        tasks_.spawn(programs_.back()->run_writer());
        return *programs_.back();
    }
    /// What comes next; type 0 if the connection has ended.
    FrameType next(Link& link) {
        for (;;) {
            const auto frame = link.next();
            REQUIRE(frame.has_value());
            if (*frame) {
                payload_ = (*frame)->payload;
                return (*frame)->type;
            }
            if (!run_to_end(io_, link.receive())) return {};
        }
    }
    bool greet(Link& link) {
        link.send(encode(Hello{}));
        return next(link) == FrameType::welcome;
    }
    Status ask(Link& link, StoreRequest request) {
        link.send(encode_request({kProgram, ++last_id_, 0, {}}, request, 1));
        if (next(link) != FrameType::reply) return Status::refused;
        return decode_reply(payload_)->header.status;
    }
    Hub& hub() { return hub_; }
    const std::string& name() const { return name_; }
    int to_agents() const { return to_agents_; }

private:
    void to_peer(PeerId, FrameType, std::string_view) override { ++to_agents_; }
    void to_root(FrameType, std::string_view) override {}
    asio::awaitable<bool> end() {
        co_await server_.join();
        co_await tasks_.join();
        co_return true;
    }

    asio::io_context& io_;
    DirectStoreServer server_;
    Hub hub_;
    HubTimer timer_{io_.get_executor(), hub_};
    std::string name_;
    std::vector<std::unique_ptr<Link>> programs_;
    TaskGroup tasks_{io_.get_executor()};
    std::string payload_;
    std::uint64_t last_id_ = 0;
    int to_agents_ = 0;
};

}  // namespace

TEST_CASE("a program sets and gets at the root of the tree what agents have too",
          "[direct_store]") {
    asio::io_context io;
    RootHere root(io);
    root.hub().add_peer(1, PeerKind::subtree, kNoRank);
    Link& program = root.connect();
    REQUIRE(root.greet(program));
    const std::string large(1u << 20, 'l');
    CHECK(root.ask(program, {.op = Op::set, .keys = {"key"}, .values = {large}}) == Status::ok);
    CHECK(root.ask(program, {.op = Op::get, .keys = {"key"}}) == Status::ok);
    CHECK(root.ask(program, {.op = Op::get, .keys = {"other"}}) == Status::not_found);
    const Bytes get = encode_request({9, 1, 0, {}}, {.op = Op::get, .keys = {"key"}}, 1);
    CHECK(root.hub().from_peer(1, {FrameType::request, payload_of(get)}, Clock::now()));
    CHECK(root.to_agents() == 1);
    root.hub().begin(2, 1);
    CHECK(root.ask(program, {.op = Op::get, .keys = {"key"}}) == Status::stale);
}

TEST_CASE("at the store's socket nothing but requests is heard", "[direct_store]") {
    asio::io_context io;
    RootHere root(io);
    Link& early = root.connect();
    early.send(encode_request({kProgram, 1, 0, {}}, {.op = Op::count}, 1));
    CHECK(root.next(early) == FrameType{});
    Hello of_yesterday;
    of_yesterday.protocol = 1;
    Link& older = root.connect();
    older.send(encode(of_yesterday));
    CHECK(root.next(older) == FrameType{});
    Link& fences = root.connect();
    REQUIRE(root.greet(fences));
    fences.send(encode(Fence{1, "fence", 0, 1, {}}));
    CHECK(root.next(fences) == FrameType{});
}

TEST_CASE("the store's socket has room for so many programs, and for another when one goes",
          "[direct_store]") {
    asio::io_context io;
    RootHere root(io);
    std::vector<Link*> programs;
    for (std::size_t i = 0; i < DirectStoreServer::kConnectionsMax; ++i) {
        programs.push_back(&root.connect());
        REQUIRE(root.greet(*programs.back()));
    }
    CHECK_FALSE(root.greet(root.connect()));
    programs.back()->close();
    io.restart();
    io.poll();
    CHECK(root.greet(root.connect()));
}

TEST_CASE("few programs of other machines ask at the root, and the others stay with their agents",
          "[direct_store]") {
    asio::io_context io;
    RootHere root(io);
    for (std::size_t i = 0; i < DirectStoreServer::kRemoteMax; ++i) {
        Link& program = root.connect_from_afar();
        REQUIRE(root.greet(program));
        CHECK(root.ask(program, {.op = Op::count}) == Status::ok);
    }
    CHECK_FALSE(root.greet(root.connect_from_afar()));
    CHECK(root.greet(root.connect()));
}

TEST_CASE("another user gets nothing at the store's socket", "[direct_store][security]") {
    if (::geteuid() != 0) {
        skip_case("needs root to be somebody else");
        return;
    }
    asio::io_context io;
    RootHere root(io);
    OtherUser other(
        [name = root.name()] { expect_to_be_turned_away(unix_socket(name, ::connect)); });
    while (!other.has_ended()) {
        io.restart();
        io.run_for(std::chrono::milliseconds(10));
    }
    CHECK(other.exit_code() == 0);
}

}  // namespace dtrun
