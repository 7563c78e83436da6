#include "rendezvous/links/client.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/request.h"
#include "rendezvous/wire/start_messages.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/other_user.h"
#include "tests/support/skip.h"
#include "worker/agent/connections.h"

namespace dtrun {

using namespace agent;
namespace {

constexpr std::chrono::seconds kPatience{5};

/// An agent's connections with a head at the other end of a TCP connection, and ranks that connect.
class Agent {
public:
    explicit Agent(asio::io_context& io) : io_(io), sockets_(socket_pair(io)) {
        to_head_ = std::make_unique<Link>(Connection{std::move(sockets_.first), std::nullopt});
        head_ = std::make_unique<Link>(Connection{std::move(sockets_.second), std::nullopt});
        connections_ = std::make_unique<Connections>(
            io.get_executor(), *to_head_, router_,
            Connections::ForRanks{[](PeerId, const Hello& hello) { return greet(hello); },
                                  [](PeerId) {}},
            [] {});
        name_ = connections_->open_for_ranks().value();
        tasks_ = std::make_unique<TaskGroup>(io.get_executor());
        tasks_->spawn(to_head_->run_writer());
        tasks_->spawn(head_->run_writer());
        tasks_->spawn(serve_head());
        connections_->relay().begin(1, 2);
    }
    ~Agent() {
        connections_->stop();
        to_head_->close();
        head_->close();
        for (auto& link : ranks_) link->close();
        for (auto& link : agents_) link->close();
        tasks_->stop();
        io_.restart();
        io_.run_for(std::chrono::seconds(1));
    }

    static Result<std::optional<Welcome>> greet(const Hello& hello) {
        if (hello.rank != kNoRank && !is_below(hello.rank, 2))
            return fail(Errc::denied, "rank {} is not on this host", hello.rank);
        Welcome welcome;
        welcome.rank = hello.rank;
        welcome.world_size = 2;
        return welcome;
    }

    Link& connect() {
        Unix::socket socket(io_);
        socket.connect(Unix::endpoint(std::string(1, '\0') + name_.substr(1)));
        ranks_.push_back(std::make_unique<Link>(std::move(socket)));
        tasks_->spawn(ranks_.back()->run_writer());
        return *ranks_.back();
    }
    Link& connect_rank(Rank rank) {
        Link& link = connect();
        Hello hello;
        hello.rank = rank;
        link.send(encode(hello));
        CHECK(next(link).first == FrameType::welcome);
        return link;
    }

    /// Agents that connect through this one, by host; they say only that they join.
    void connect_agents(std::initializer_list<HostId> hosts) {
        const Credentials credentials{random_job_id(), Secret::random()};
        const std::uint16_t port =
            connections_->open_for_agents(credentials, {"127.0.0.1"}).value();
        for (const HostId host : hosts) {
            auto connection = run_to_end(
                io_, connect_to_server({"127.0.0.1"}, port, credentials, after(kPatience)));
            REQUIRE(connection.has_value());
            agents_.push_back(std::make_unique<Link>(std::move(*connection)));
            Join join;
            join.host = host;
            agents_.back()->send(encode(join));
            CHECK(next_of(FrameType::relayed).first == FrameType::relayed);
        }
    }
    Link& agent_below(std::size_t index) { return *agents_.at(index); }
    /// Has heartbeats sent, and silent agents given up, until the end.
    void beat(FailureDetector& detector) {
        tasks_->spawn(detector.run(
            [this, &detector] { return connections_->beat(detector) ? Pace::alert : Pace::calm; }));
    }

    /// The next frame of a type that comes to the head.
    std::pair<FrameType, std::string> next_of(FrameType type) {
        for (;;) {
            auto frame = next(head());
            if (frame.first == type || frame.first == FrameType{}) return frame;
        }
    }
    /// The next frame that comes over a link; type 0 if it ended.
    std::pair<FrameType, std::string> next(Link& link) {
        for (;;) {
            const auto frame = link.next();
            REQUIRE(frame.has_value());
            if (*frame) return {(*frame)->type, std::string((*frame)->payload)};
            if (!run_to_end(io_, link.receive())) return {};
        }
    }
    Link& head() { return *head_; }
    const std::string& name() const { return name_; }

private:
    asio::awaitable<void> serve_head() {
        for (;;) {
            const auto received = co_await to_head_->receive();
            if (!received) co_return;
            for (;;) {
                const auto frame = to_head_->next();
                if (!frame || !*frame) break;
                CHECK(router_.route(**frame));
            }
        }
    }

    asio::io_context& io_;
    std::pair<tcp::socket, tcp::socket> sockets_;
    std::unique_ptr<Link> to_head_, head_;
    Router<> router_;
    std::unique_ptr<Connections> connections_;
    std::vector<std::unique_ptr<Link>> ranks_, agents_;
    std::unique_ptr<TaskGroup> tasks_;
    std::string name_;
};

}  // namespace

TEST_CASE("a rank that says hello is welcomed, one from elsewhere is refused with the reason",
          "[connections]") {
    asio::io_context io;
    Agent agent(io);
    agent.connect_rank(Rank{1});
    agent.connect_rank(kNoRank);
    Link& stranger = agent.connect();
    Hello hello;
    hello.rank = Rank{9};
    stranger.send(encode(hello));
    const auto [type, payload] = agent.next(stranger);
    CHECK(type == FrameType::refuse);
    CHECK(decode<Refuse>(payload)->reason == "rank 9 is not on this host");
    CHECK(agent.next(stranger).first == FrameType{});
}

TEST_CASE("an agent does not speak to processes of other users", "[connections]") {
    if (::geteuid() != 0) {
        skip_case("needs root to be somebody else");
        return;
    }
    asio::io_context io;
    Agent agent(io);
    OtherUser other([&] { expect_to_be_turned_away(unix_socket(agent.name(), ::connect)); });
    while (!other.has_ended()) io.run_one_for(std::chrono::milliseconds(10));
    CHECK(other.exit_code() == 0);
    agent.connect_rank(Rank{1});
}

TEST_CASE("a process that speaks no or another protocol is cut off", "[connections]") {
    asio::io_context io;
    Agent agent(io);
    Link& wrong_order = agent.connect();
    wrong_order.send(encode(Gone{1}));
    CHECK(agent.next(wrong_order).first == FrameType{});
    Link& garbage = agent.connect();
    garbage.send(Bytes(64, '\xff'));
    CHECK(agent.next(garbage).first == FrameType{});
    Link& older = agent.connect();
    Hello hello;
    hello.protocol = 1;
    older.send(encode(hello));
    CHECK(decode<Refuse>(agent.next(older).second)->reason ==
          fmt::format("it speaks protocol 1, this is {}", kProtocolVersion));
}

TEST_CASE("a rank that has finalized its worker and lives on is away until it says hello again",
          "[connections]") {
    asio::io_context io;
    Agent agent(io);
    Link& waits = agent.connect_rank(Rank{0});
    Link& finalizes = agent.connect_rank(Rank{1});
    waits.send(encode(Fence{1, "f", 0, 1, {}}));
    finalizes.close();  // its process, ours, lives on
    const auto [type, payload] = agent.next(agent.head());
    REQUIRE(type == FrameType::unfence);
    CHECK(decode<Unfence>(payload)->name.empty());
    CHECK(decode<Unfence>(payload)->away == Rank{1});
    CHECK(decode<Unfence>(payload)->why == "rank 1 has finalized its worker");
    Link& back = agent.connect_rank(Rank{1});
    const auto [next, is_back] = agent.next(agent.head());
    REQUIRE(next == FrameType::unfence);
    CHECK(decode<Unfence>(is_back)->away == Rank{1});
    CHECK(decode<Unfence>(is_back)->is_back);
    back.send(encode(Fence{1, "f", 0, 1, {}}));
    CHECK(agent.next(agent.head()).first == FrameType::fence);
}

TEST_CASE("what a rank says wrongly ends its own connection at most", "[connections]") {
    asio::io_context io;
    Agent agent(io);
    Link& other = agent.connect_rank(Rank{0});
    Hello hello;
    hello.rank = Rank{1};
    const Bytes lies[] = {encode(hello),
                          encode(Welcome{}),
                          encode(Fence{1, "", 0, 1, {}}),
                          encode(Fence{1, "f", 0, 2, {}}),
                          encode(Heartbeat{9, {Rank{0}, 1}, 1}),
                          encode(Unfence{1, "", 0, "all", Rank{0}}),
                          encode(Gone{11}),
                          encode_request({11, 1, 0, Op::get}, "no array"),
                          Bytes(64, '\xff')};
    for (const Bytes& lie : lies) {
        Link& liar = agent.connect_rank(Rank{1});
        liar.send(lie);
        liar.send(Bytes(64, '\xff'));
        CHECK(agent.next(liar).first == FrameType{});
    }
    // The head has heard of none of this but the request, and that its client is gone.
    CHECK(agent.next(agent.head()).first == FrameType::request);
    CHECK(agent.next(agent.head()).first == FrameType::gone);
    other.send(encode_request({22, 1, 0, Op::get}, "\x90"));
    const auto [type, payload] = agent.next(agent.head());
    REQUIRE(type == FrameType::request);
    CHECK(decode_request(payload)->header.client == 22);
}

TEST_CASE("a rank that connects again after it has closed its connection fails nothing",
          "[connections]") {
    asio::io_context io;
    Agent agent(io);
    Link& waits = agent.connect_rank(Rank{0});
    agent.connect_rank(Rank{1}).close();
    Link& again = agent.connect_rank(Rank{1});
    waits.send(encode(Fence{1, "f", 0, 1, {}}));
    io.restart();
    io.run_for(std::chrono::milliseconds(1'500));  // longer than it is waited for
    again.send(encode(Fence{1, "f", 0, 1, {}}));
    CHECK(agent.next(agent.head()).first == FrameType::fence);
}

TEST_CASE("requests of many ranks go up one connection, and each reply to who asked",
          "[connections]") {
    asio::io_context io;
    Agent agent(io);
    Link& one = agent.connect_rank(Rank{0});
    Link& two = agent.connect_rank(Rank{1});
    one.send(encode_request({11, 1, 0, Op::get}, "\x90"));
    two.send(encode_request({22, 1, 0, Op::get}, "\x90"));
    for (int i = 0; i < 2; ++i) {
        const auto [type, payload] = agent.next(agent.head());
        REQUIRE(type == FrameType::request);
        const auto request = decode_request(payload);
        agent.head().send(encode_reply({request->header.client, 1, Status::ok}, "\x90"));
    }
    for (Link* link : {&one, &two}) {
        const auto [type, payload] = agent.next(*link);
        REQUIRE(type == FrameType::reply);
        CHECK(decode_reply(payload)->header.client == (link == &one ? 11u : 22u));
    }
    one.close();
    const auto [type, payload] = agent.next(agent.head());
    CHECK(type == FrameType::gone);
    CHECK(decode<Gone>(payload)->client == 11);
}

TEST_CASE("a fence of a host's ranks goes up as one frame", "[connections]") {
    asio::io_context io;
    Agent agent(io);
    Link& one = agent.connect_rank(Rank{0});
    Link& two = agent.connect_rank(Rank{1});
    one.send(encode(Fence{1, "f", 0, 1, {{Rank{0}, "a"}}}));
    two.send(encode(Fence{1, "f", 0, 1, {{Rank{1}, "b"}}}));
    const auto [type, payload] = agent.next(agent.head());
    REQUIRE(type == FrameType::fence);
    const auto sum = decode<Fence>(payload);
    CHECK(sum->ranks == 2);
    CHECK(sum->entries.size() == 2);
    agent.head().send(encode(Fenced{1, "f", 0, true, "", sum->entries}));
    for (Link* link : {&one, &two}) CHECK(agent.next(*link).first == FrameType::fenced);
}

TEST_CASE("an agent that has said that it is busy is given up later than others", "[connections]") {
    asio::io_context io;
    FailureDetector detector(io.get_executor(), std::chrono::milliseconds(200));
    Agent agent(io);
    agent.connect_agents({HostId{1}, HostId{2}});
    Heartbeat busy;
    busy.busy = true;
    agent.agent_below(0).send(encode(busy));
    agent.beat(detector);
    CHECK(decode<RelayLost>(agent.next_of(FrameType::relay_lost).second)->host == HostId{2});
    CHECK(decode<RelayLost>(agent.next_of(FrameType::relay_lost).second)->host == HostId{1});
}

}  // namespace dtrun
