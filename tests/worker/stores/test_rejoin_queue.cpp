#include "tests/support/catch.h"
#include "worker/stores/rejoin_queue.h"

namespace dtrun::stores {
namespace {

constexpr SlotIndex one{0}, two{1};
using Told = std::vector<std::pair<SlotIndex, RejoinState>>;

struct Places {
    Told told;
    std::vector<std::pair<Rank, std::uint64_t>> answers;  ///< ranks, and their generations
    RejoinQueue rejoins{
        [this](const RejoinStatus& news) { told.emplace_back(news.place, news.state); }};

    RejoinQueue::Answer answer() {
        return [this](const RankSlot& rank, const Assign& world) {
            answers.emplace_back(rank.rank, world.generation);
        };
    }
    void begin(std::uint64_t generation, std::vector<RankSlot> ranks) {
        Assign world;
        world.generation = generation;
        world.ranks = std::move(ranks);
        rejoins.begin(world);
    }
};

}  // namespace

TEST_CASE("a process's state is told once in each world", "[stores][elastic]") {
    Places d;
    d.begin(1, {{Rank{0}, 0, 0, 1, 0, one}});
    d.rejoins.started(one, 1, Rank{0});
    CHECK_FALSE(d.rejoins.is_early(one));
    d.rejoins.supports_rejoin(one);
    d.rejoins.supports_rejoin(one);
    d.rejoins.rendezvoused(one);
    d.rejoins.rendezvoused(one);
    d.rejoins.rendezvoused(two);  // nobody
    CHECK(d.told == Told{{one, RejoinState::supports_rejoin}, {one, RejoinState::rendezvoused}});
    d.rejoins.ask(one, d.answer());
    d.begin(2, {{Rank{0}, 0, 0, 1, 0, one}});
    d.rejoins.rendezvoused(one);
    CHECK(d.told.size() == 4);
}

TEST_CASE("who asks for a place is answered once, in the next world", "[stores][elastic]") {
    Places d;
    d.begin(1, {{Rank{3}, 0, 0, 1, 0, one}});
    d.rejoins.started(one, 1, Rank{3});
    d.rejoins.ask(one, d.answer());
    CHECK(d.rejoins.waits(one));
    CHECK(d.answers.empty());
    d.begin(2, {{Rank{1}, 0, 0, 1, 0, one}});
    d.begin(3, {{Rank{0}, 0, 0, 1, 0, one}});
    CHECK(d.answers == std::vector<std::pair<Rank, std::uint64_t>>{{Rank{1}, 2}});
    CHECK_FALSE(d.rejoins.waits(one));
}

TEST_CASE("who has no place in the next world, or does not wait any more, is not answered",
          "[stores][elastic]") {
    Places d;
    d.begin(1, {});
    d.rejoins.started(one, 1, Rank{0});
    d.rejoins.started(two, 1, Rank{1});
    d.rejoins.ask(one, d.answer());
    const auto given_up = d.rejoins.ask(two, d.answer());
    d.rejoins.forget(given_up);
    d.rejoins.forget(given_up);
    d.begin(2, {{Rank{0}, 0, 0, 1, 0, two}});
    CHECK(d.answers.empty());
    CHECK(d.rejoins.waits(one));  // its place may come back
}

TEST_CASE("a process is known by the rank and world that it was started for", "[stores][elastic]") {
    Places d;
    d.begin(1, {{Rank{5}, 0, 0, 1, 0, one}});
    d.rejoins.started(one, 1, Rank{5});
    d.begin(2, {{Rank{2}, 0, 0, 1, 0, one}});
    CHECK(d.rejoins.started_as(1, Rank{5}) == one);
    CHECK_FALSE(d.rejoins.started_as(2, Rank{2}));
    d.rejoins.ended(one);
    CHECK_FALSE(d.rejoins.started_as(1, Rank{5}));
}

TEST_CASE("who is answered may ask again at once", "[stores][elastic]") {
    Places d;
    d.begin(1, {});
    d.rejoins.started(one, 1, Rank{0});
    d.rejoins.ask(one, [&d](const RankSlot&, const Assign&) { d.rejoins.ask(one, d.answer()); });
    d.begin(2, {{Rank{0}, 0, 0, 1, 0, one}});
    CHECK(d.answers.empty());
    d.begin(3, {{Rank{0}, 0, 0, 1, 0, one}});
    CHECK(d.answers.size() == 1);
}

}  // namespace dtrun::stores
