#include "tests/support/catch.h"
#include "worker/client/client_membership.h"

namespace dtrun::embedded {
namespace {

Assign assignment(std::uint64_t generation, std::uint32_t rank) {
    Assign assign;
    assign.generation = generation;
    assign.world_size = 4;
    assign.ranks = {{.rank = Rank{rank}}};
    return assign;
}

RankInfo info_of(std::string job, std::uint64_t generation, std::uint32_t rank) {
    RankInfo info;
    info.job = std::move(job);
    info.generation = generation;
    info.rank = rank;
    return info;
}

}  // namespace

TEST_CASE("the first welcome brings a place, a later one does not", "[client]") {
    ClientMembership membership(info_of("", 1, 0));
    CHECK_FALSE(membership.is_placed());
    membership.welcome(info_of("j", 2, 3));
    CHECK(membership.is_placed());
    CHECK(membership.generation() == 2);
    CHECK(membership.job() == "j");
    membership.welcome(info_of("k", 3, 0));
    CHECK(membership.job() == "j");
    CHECK(membership.rank_info().rank == 3);
}

TEST_CASE("an assignment that is sent again changes nothing", "[client][daemon]") {
    ClientMembership membership(info_of("j", 0, 0));
    CHECK(membership.assign(assignment(2, 1)).value());
    CHECK(membership.is_placed());
    CHECK(membership.rank_info().rank == 1);
    CHECK_FALSE(membership.assign(assignment(2, 3)).value());
    CHECK(membership.rank_info().rank == 1);
    CHECK(membership.generation() == 2);
}

TEST_CASE("an assignment of two ranks is not for one process", "[client][daemon]") {
    ClientMembership membership({});
    Assign two = assignment(2, 1);
    two.ranks.push_back({.rank = Rank{2}});
    CHECK(membership.assign(two).error().message == "2 ranks for one process");
    CHECK_FALSE(membership.is_placed());
}

}  // namespace dtrun::embedded
