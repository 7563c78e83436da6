#include "tests/support/catch.h"
#include "worker/client/standing.h"

namespace dtrun::embedded {
namespace {

Assign assignment(std::uint64_t generation, std::uint32_t rank) {
    Assign assign;
    assign.generation = generation;
    assign.world_size = 4;
    assign.ranks = {{.rank = Rank{rank}}};
    return assign;
}

Place place(std::string job, std::uint64_t generation, std::uint32_t rank) {
    Place place;
    place.job = std::move(job);
    place.generation = generation;
    place.rank = rank;
    return place;
}

}  // namespace

TEST_CASE("the first welcome brings a place, a later one does not", "[client]") {
    Standing standing(place("", 1, 0));
    CHECK_FALSE(standing.is_placed());
    standing.welcome(place("j", 2, 3));
    CHECK(standing.is_placed());
    CHECK(standing.generation() == 2);
    CHECK(standing.job() == "j");
    standing.welcome(place("k", 3, 0));
    CHECK(standing.job() == "j");
    CHECK(standing.place().rank == 3);
}

TEST_CASE("an assignment that is sent again changes nothing", "[client][daemon]") {
    Standing standing(place("j", 0, 0));
    CHECK(standing.assign(assignment(2, 1)).value());
    CHECK(standing.is_placed());
    CHECK(standing.place().rank == 1);
    CHECK_FALSE(standing.assign(assignment(2, 3)).value());
    CHECK(standing.place().rank == 1);
    CHECK(standing.generation() == 2);
}

TEST_CASE("an assignment of two ranks is not for one process", "[client][daemon]") {
    Standing standing({});
    Assign two = assignment(2, 1);
    two.ranks.push_back({.rank = Rank{2}});
    CHECK(standing.assign(two).error().message == "2 ranks for one process");
    CHECK_FALSE(standing.is_placed());
}

}  // namespace dtrun::embedded
