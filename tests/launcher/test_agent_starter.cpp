#include "launcher/transport/agent_starter.h"

#include <catch2/catch.hpp>
#include <filesystem>

namespace dtrun {

using namespace transport;

TEST_CASE("an agent that many hosts lack is read once", "[agent]") {
    const std::string machine = "testcpu";
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string file = self.substr(0, self.rfind('/') + 1) + "dtrun-agent-" + machine;
    AgentCopies copies;
    CHECK_FALSE(copies.get(machine).has_value());
    std::filesystem::copy_file("/bin/true", file);
    const auto first = copies.get(machine);
    std::filesystem::remove(file);
    REQUIRE(first.has_value());
    CHECK((*first)->bytes.size() > 100);
    const auto again = copies.get(machine);
    REQUIRE(again.has_value());
    CHECK(*again == *first);
}

}  // namespace dtrun
