// What ranks' clients and their agent say to each other when the generation changes, over real sockets.
#include "worker/agent/elastic_clients.h"

#include "rendezvous/links/link.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/messages_of.h"

namespace dtrun {

using namespace agent;
namespace {

constexpr SlotIndex first_place{0}, second_place{1};
using Told = std::vector<std::pair<SlotIndex, RejoinState>>;

/// An agent's part in it, and ranks that connect. Frames for the head go nowhere.
class LivingHost {
public:
    explicit LivingHost(asio::io_context& io) : io_(io), sockets_(socket_pair(io)) {
        to_head_ = std::make_unique<Link>(Connection{std::move(sockets_.first), std::nullopt});
        connections_ = std::make_unique<Connections>(
            io.get_executor(), *to_head_, router_,
            Connections::ForRanks{
                [this](PeerId peer, const Hello& hello) { return greet(peer, hello); },
                [this](PeerId peer) { living_->left(peer); }},
            [] {});
        living_ = std::make_unique<ElasticClients>(
            ElasticClients::Parts{io.get_executor(), *connections_, rejoins, "s1",
                                  [](const RankSlot& slot, const Assign& world) {
                                      Welcome welcome;
                                      welcome.rank = slot.rank;
                                      welcome.generation = world.generation;
                                      welcome.world_size = world.world_size;
                                      return welcome;
                                  },
                                  [this](Rank rank, const std::string& why) {
                                      hung.push_back(rank);
                                      shown.push_back(why);
                                  }});
        REQUIRE(living_->open());
        name_ = connections_->open_for_ranks().value();
        tasks_ = std::make_unique<TaskGroup>(io.get_executor());
        tasks_->spawn(to_head_->run_writer());
    }
    ~LivingHost() {
        living_->stop();
        connections_->stop();
        to_head_->close();
        for (auto& link : ranks_) link->close();
        tasks_->stop();
        io_.restart();
        io_.run_for(std::chrono::seconds(1));
    }

    void begin(std::uint64_t generation, std::vector<RankSlot> ranks) {
        Assign world;
        world.generation = generation;
        world.ranks = std::move(ranks);
        world.world_size = static_cast<std::uint32_t>(world.ranks.size());
        connections_->relay().begin(generation, world.world_size);
        living_->begin(world);
        rejoins.begin(world);
    }

    Link& hello(std::uint64_t generation, Rank rank, bool elastic) {
        Unix::socket socket(io_);
        socket.connect(Unix::endpoint(std::string(1, '\0') + name_.substr(1)));
        ranks_.push_back(std::make_unique<Link>(std::move(socket)));
        tasks_->spawn(ranks_.back()->run_writer());
        Hello hello;
        hello.generation = generation;
        hello.rank = rank;
        hello.elastic = elastic;
        ranks_.back()->send(encode(hello));
        return *ranks_.back();
    }
    /// A rank in generation 1 that has its place.
    Link& only_rank(Rank rank, bool elastic) {
        begin(1, {{rank, 0, 0, 1, 0, first_place}});
        rejoins.started(first_place, 1, rank);
        Link& link = hello(1, rank, elastic);
        welcomed(link);
        return link;
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
    Welcome welcomed(Link& link) {
        const auto [type, payload] = next(link);
        REQUIRE(type == FrameType::welcome);
        return *decode<Welcome>(payload);
    }
    /// Lets the agent read what ranks have sent.
    void settle() { dtrun::settle(io_, std::chrono::milliseconds(50)); }
    ElasticClients& living() { return *living_; }

    Told told;
    std::vector<Rank> hung;
    std::vector<std::string> shown;
    stores::RejoinQueue rejoins{
        [this](const RejoinStatus& news) { told.emplace_back(news.place, news.state); }};

    const Router<PeerId>& from_ranks() const { return connections_->from_ranks(); }

private:
    Result<std::optional<Welcome>> greet(PeerId peer, const Hello& hello) {
        const auto place = rejoins.started_as(hello.generation, hello.rank);
        if (!place) return fail(Errc::denied, "nobody");
        return living_->hello(peer, *place, hello);
    }

    asio::io_context& io_;
    std::pair<tcp::socket, tcp::socket> sockets_;
    std::unique_ptr<Link> to_head_;
    Router<> router_;
    std::unique_ptr<Connections> connections_;
    std::unique_ptr<ElasticClients> living_;
    std::vector<std::unique_ptr<Link>> ranks_;
    std::unique_ptr<TaskGroup> tasks_;
    std::string name_;
};

}  // namespace

TEST_CASE("every message of ranks to their agent has one receiver", "[agent]") {
    asio::io_context io;
    LivingHost host(io);
    CHECK(types_with([&host](FrameType type) { return host.from_ranks().has(type); }) ==
          messages_of("rank → agent"));
}

TEST_CASE("an elastic client is capable and settled when it has its place, another is neither",
          "[agent][elastic]") {
    asio::io_context io;
    LivingHost host(io);
    host.begin(1, {{Rank{4}, 0, 0, 1, 0, first_place}, {Rank{5}, 1, 0, 1, 1, second_place}});
    host.rejoins.started(first_place, 1, Rank{4});
    host.rejoins.started(second_place, 1, Rank{5});
    CHECK(host.welcomed(host.hello(1, Rank{5}, false)).rank == Rank{5});
    CHECK(host.told.empty());
    CHECK(host.welcomed(host.hello(1, Rank{4}, true)).rank == Rank{4});
    CHECK(host.told == Told{{first_place, RejoinState::supports_rejoin},
                            {first_place, RejoinState::rendezvoused}});
}

TEST_CASE("a client that rejoins is welcomed when the next generation has begun, as another rank",
          "[agent][elastic]") {
    asio::io_context io;
    LivingHost host(io);
    Link& rank = host.only_rank(Rank{4}, true);
    rank.send(encode(Rejoin{1}));
    rank.send(encode(Rejoin{1}));  // it may say so again, and has asked once
    host.settle();
    CHECK(host.told == Told{{first_place, RejoinState::supports_rejoin},
                            {first_place, RejoinState::rendezvoused},
                            {first_place, RejoinState::wants_rank}});
    host.begin(2, {{Rank{0}, 0, 0, 1, 0, first_place}});
    const Welcome welcome = host.welcomed(rank);
    CHECK(welcome.rank == Rank{0});
    CHECK(welcome.generation == 2);
    CHECK(host.told.back() == std::pair(first_place, RejoinState::rendezvoused));
    // Its process is the same, whatever its variables say.
    CHECK(host.welcomed(host.hello(1, Rank{4}, false)).rank == Rank{0});
}

TEST_CASE("a client whose generation is over already gets its present place at once",
          "[agent][elastic]") {
    asio::io_context io;
    LivingHost host(io);
    Link& rank = host.only_rank(Rank{4}, true);
    host.begin(2, {{Rank{3}, 0, 0, 1, 0, first_place}});
    rank.send(encode(Rejoin{1}));
    CHECK(host.welcomed(rank).rank == Rank{3});
}

TEST_CASE("a process of a generation that has not begun is welcomed when it begins",
          "[agent][elastic]") {
    asio::io_context io;
    LivingHost host(io);
    host.begin(1, {});
    host.rejoins.started(second_place, 2, Rank{7});
    Link& newcomer = host.hello(2, Rank{7}, true);
    host.settle();
    CHECK(host.told == Told{{second_place, RejoinState::held_at_start}});
    host.begin(2, {{Rank{7}, 0, 0, 1, 0, second_place}});
    CHECK(host.welcomed(newcomer).generation == 2);
    CHECK(host.told == Told{{second_place, RejoinState::held_at_start},
                            {second_place, RejoinState::supports_rejoin},
                            {second_place, RejoinState::rendezvoused}});
}

TEST_CASE("a change is told to ranks once, and who gets no place in it hears that",
          "[agent][elastic]") {
    asio::io_context io;
    LivingHost host(io);
    Link& rank = host.only_rank(Rank{0}, true);
    host.living().announce({1, 2, ChangeReason::joined, 0, 0}, 0, "hosts change");
    host.living().announce({1, 2, ChangeReason::joined, 0, 40}, 0, "hosts change");
    host.living().announce({1, 2, ChangeReason::lost, 0, 0}, 0, "a rank is lost");
    for (const ChangeReason reason : {ChangeReason::joined, ChangeReason::lost}) {
        const auto [type, payload] = host.next(rank);
        REQUIRE(type == FrameType::event);
        CHECK(decode<RankEvent>(payload)->generation == 2);
        CHECK(decode<RankEvent>(payload)->reason == reason);
    }
    rank.send(encode(Rejoin{1}));
    host.settle();
    host.living().dismiss({first_place}, 5'000);
    const auto [type, payload] = host.next(rank);
    REQUIRE(type == FrameType::event);
    CHECK(decode<RankEvent>(payload)->kind == RankEvent::Kind::shutdown);
}

TEST_CASE("only a client that has said so can rejoin", "[agent][elastic]") {
    asio::io_context io;
    LivingHost host(io);
    Link& rank = host.only_rank(Rank{0}, false);
    rank.send(encode(Rejoin{1}));
    CHECK(host.next(rank).first == FrameType{});
    CHECK(host.told.empty());
}

TEST_CASE("a rank that is in a section for too long is named", "[agent][sections]") {
    asio::io_context io;
    LivingHost host(io);
    Link& rank = host.only_rank(Rank{3}, false);
    rank.send(encode(Section{Section::Kind::begin, "short", 10}));
    rank.send(encode(Section{Section::Kind::begin, "long", 60'000}));
    host.settle();
    CHECK(host.shown == std::vector<std::string>{
                            "rank 3 is in section \"short\" for longer than its limit of 0.01 s"});
    CHECK(host.hung == std::vector<Rank>{Rank{3}});
}

TEST_CASE("what a rank waits for is told by the number that it has now, until the next generation",
          "[agent][stall]") {
    asio::io_context io;
    LivingHost host(io);
    Link& rank = host.only_rank(Rank{3}, false);
    rank.send(encode(Stall{"an allreduce", 60'000}));
    host.settle();
    std::vector<RankWait> waits;
    host.living().add_waits(waits);
    REQUIRE(waits.size() == 1);
    CHECK(waits.front().rank == Rank{3});
    CHECK(waits.front().waited_ms >= 60'000);
    host.begin(2, {{Rank{0}, 0, 0, 1, 0, first_place}});
    waits.clear();
    host.living().add_waits(waits);
    CHECK(waits.empty());
}

TEST_CASE("a rank that hangs is named, and may be killed, by the number that it has now",
          "[agent][sections]") {
    asio::io_context io;
    LivingHost host(io);
    // Its framework lives on in another generation, of which our client in it has heard nothing.
    Link& rank = host.only_rank(Rank{4}, false);
    host.begin(2, {{Rank{3}, 0, 0, 2, 0, first_place}, {Rank{4}, 1, 0, 2, 0, second_place}});
    rank.send(encode(Section{Section::Kind::begin, "short", 10}));
    host.settle();
    CHECK(host.hung == std::vector<Rank>{Rank{3}});
    // It has no place any more, and is being ended.
    host.begin(3, {{Rank{4}, 0, 0, 1, 0, second_place}});
    rank.send(encode(Section{Section::Kind::begin, "again", 10}));
    host.settle();
    CHECK(host.hung.size() == 1);
}

}  // namespace dtrun
