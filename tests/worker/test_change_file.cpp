#include "worker/agent/change_file.h"

#include "base/fd.h"
#include "tests/support/catch.h"

#include <filesystem>

namespace dtrun {

using namespace agent;

TEST_CASE("the change file is there from the news of a change until the change",
          "[agent][elastic]") {
    contracts::ContractFacts facts;
    {
        ChangeFile file("dtrun-test-");
        REQUIRE(file.open(facts));
        REQUIRE_FALSE(facts.change_file.empty());
        Assign world;
        world.generation = 1;
        REQUIRE(file.begin(world));
        CHECK_FALSE(std::filesystem::exists(facts.change_file));
        file.changing({1, 2, ChangeReason::joined, 0, 0});
        CHECK(read_file(facts.change_file) == "2 joined 0\n");
        file.changing({1, 2, ChangeReason::left, 1'700'000'000'001, 40});
        CHECK(read_file(facts.change_file) == "2 left 1700000001\n");
        REQUIRE(file.go_on(world));
        CHECK_FALSE(std::filesystem::exists(facts.change_file));
        file.changing({2, 3, ChangeReason::lost, 0, 0});
    }
    CHECK_FALSE(std::filesystem::exists(std::filesystem::path(facts.change_file).parent_path()));
}

TEST_CASE("a job that is not elastic has no change file", "[agent][elastic]") {
    contracts::ContractFacts facts;
    ChangeFile file("");
    REQUIRE(file.open(facts));
    file.changing({1, 2, ChangeReason::restarted, 0, 0});
    CHECK(facts.change_file.empty());
}

}  // namespace dtrun
