#include "collectives/backends/mpi/rank_status.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <algorithm>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

const RankStatus kNew{"Open MPI", false, {}};

/// What each rank hears when these meet.
std::vector<std::string> heard(const std::vector<RankStatus>& statuses) {
    const auto results = run_ranks(static_cast<std::uint32_t>(statuses.size()),
                                   std::function([&](const GroupSpec& spec) -> Result<void> {
                                       return meet(spec, "before", statuses[spec.rank]);
                                   }));
    std::vector<std::string> texts;
    for (const auto& result : results) texts.push_back(result ? "" : result.error().message);
    return texts;
}

void check_all_heard(const std::vector<RankStatus>& statuses, const std::string& text) {
    CHECK(heard(statuses) == std::vector<std::string>(statuses.size(), text));
}

}  // namespace

TEST_CASE("ranks with the same MPI go on, in as many meetings as they like", "[collectives][mpi]") {
    check_all_heard({kNew, kNew, kNew}, "");
    const auto results = run_ranks(4, std::function([](const GroupSpec& spec) -> Result<void> {
                                       if (auto met = meet(spec, "before", kNew); !met) return met;
                                       RankStatus begun = kNew;
                                       begun.begun = true;
                                       return meet(spec, "begun", begun);
                                   }));
    CHECK(failures(results) == "");
}

TEST_CASE("all ranks hear the same of one that does not fit", "[collectives][mpi]") {
    check_all_heard({kNew, kNew, {"MPICH", false, {}}},
                    "rank 0 uses Open MPI and rank 2 MPICH: all need the same MPI library "
                    "(DTRUN_MPI_LIBRARY)");
    check_all_heard({kNew, {"MPICH", false, "it has no hands, nor feet"}},
                    "rank 1: it has no hands, nor feet");
    check_all_heard({kNew, {"Open MPI", true, {}}},
                    "MPI has begun in rank 1 but not in rank 0, and cannot begin twice in one "
                    "process: after a change of the membership use the backend gloo");
}

TEST_CASE("a rank that does not come to make a group is named", "[collectives][mpi]") {
    const auto results =
        run_ranks(3, std::function([](const GroupSpec& given) -> Result<void> {
                      GroupSpec spec = given;
                      spec.members = {7, 8, 9};
                      spec.timeout = std::chrono::milliseconds(100);
                      if (spec.rank == 0) return meet(spec, "before", kNew);
                      spec.timeout = std::chrono::seconds(20);
                      return spec.rank == 1 ? meet(spec, "before", kNew) : Result<void>();
                  }));
    for (const int rank : {0, 1}) {
        REQUIRE_FALSE(results[static_cast<std::size_t>(rank)]);
        const Error& error = results[static_cast<std::size_t>(rank)].error();
        CHECK(error.code == Errc::timed_out);
        CHECK_THAT(error.message, Catch::Contains("rank 9 has not come") ||
                                      Catch::Contains("rank 8 has not come"));
    }
}

TEST_CASE("a status is decoded as it was encoded, and nothing else is", "[collectives][mpi]") {
    for (const bool begun : {false, true}) {
        const RankStatus one{"MPICH", begun, "what is wrong with it"};
        const auto same = RankStatus::decode(one.encode());
        REQUIRE(same);
        CHECK(same->library == one.library);
        CHECK(same->begun == begun);
        CHECK(same->problem == one.problem);
    }
    CHECK(RankStatus::decode(kNew.encode())->problem.empty());
    for (const char* text : {"", "\n", "new", "new\nMPICH", "old\nMPICH\n", "MPICH\nnew\n"})
        CHECK_FALSE(RankStatus::decode(text).has_value());
}
