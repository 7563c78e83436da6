#include "tests/support/catch.h"
#include "worker/agent/visible_devices.h"

namespace dtrun::agent {

TEST_CASE("a process that joins others gets the device of its place under its local rank",
          "[elastic]") {
    const auto of = [](std::uint32_t place, std::uint32_t local_rank,
                       std::optional<std::string_view> inherited) {
        return visible_devices(SlotIndex{place}, local_rank, inherited, 4).value_or("-");
    };
    CHECK(of(0, 3, {}) == "1,2,3,0");
    CHECK(of(2, 1, {}) == "0,2,1,3");
    CHECK(of(0, 3, "4,5,6,7") == "5,6,7,4");
    CHECK(of(1, 0, "GPU-a,GPU-b") == "GPU-b,GPU-a");
    CHECK(of(2, 2, {}) == "-");
    CHECK(of(3, 0, "0,1") == "-");
}

}  // namespace dtrun::agent
