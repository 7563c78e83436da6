#include "collectives/algorithms/compressed.h"
#include "collectives/host/machine_parts.h"
#include "tests/collectives/native/levels_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

namespace fs = std::filesystem;

/// A rank on a host, bound to a NUMA node.
struct Bound {
    std::uint32_t host;
    std::int32_t node;
};

Layout hosts_of(const std::vector<Bound>& ranks) {
    Layout layout;
    for (const Bound& rank : ranks) layout.push_back(rank.host);
    return layout;
}

std::vector<Locality> nodes_of(const std::vector<Bound>& ranks) {
    std::vector<Locality> locality;
    for (const Bound& rank : ranks) locality.push_back({rank.node, -1});
    return locality;
}

/// `count` ranks on one host, dealt out to these nodes.
std::vector<Bound> dealt(std::size_t count, const std::vector<std::int32_t>& nodes) {
    std::vector<Bound> ranks;
    for (std::size_t rank = 0; rank < count; ++rank)
        ranks.push_back({0, nodes[rank % nodes.size()]});
    return ranks;
}

/// Ranks that are not bound, on a host of their own, between others.
std::vector<Bound> beside_unbound(std::vector<Bound> ranks) {
    for (const std::ptrdiff_t at : {1, 5, 9}) ranks.insert(ranks.begin() + at, {1, -1});
    return ranks;
}

/// In blocks, dealt out, three nodes, and more than one host.
const std::vector<std::vector<Bound>> kMachines{
    dealt(16, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}),
    dealt(16, {5, 2, 2, 5}),
    dealt(24, {0, 1, 2}),
    beside_unbound(dealt(16, {0, 1})),
};

std::vector<std::uint32_t> parts_of(const std::vector<Locality>& ranks) {
    const auto parts = MachineParts::of(ranks);
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t place = 0; parts && place < ranks.size(); ++place)
        numbers.push_back(parts->part_of(place));
    return numbers;
}

}  // namespace

TEST_CASE("Processors of one NUMA node or socket are known by what sysfs has", "[levels]") {
    // Two sockets with two nodes each, and a processor of which nothing is known.
    const TempDir system;
    for (unsigned cpu = 0; cpu < 8; ++cpu) {
        const fs::path folder = system.at(fmt::format("cpu/cpu{}", cpu));
        fs::create_directories(folder / "topology");
        std::ofstream(folder / "topology/physical_package_id") << cpu / 4 << '\n';
        fs::create_directories(folder / fmt::format("node{}", cpu / 2));
    }
    fs::create_directories(system.at("cpu/cpu8"));
    const auto locality = [&](std::vector<unsigned> cpus) {
        const Locality found = locality_of(cpus, system.path());
        return std::pair(found.node, found.socket);
    };
    CHECK(locality({2, 3}) == std::pair(1, 0));
    CHECK(locality({7}) == std::pair(3, 1));
    CHECK(locality({4, 5, 6, 7}) == std::pair(-1, 1));
    CHECK(locality({3, 4}) == std::pair(-1, -1));
    CHECK(locality({0, 8}) == std::pair(-1, -1));
    CHECK(locality({9}) == std::pair(-1, -1));
    CHECK(locality({}) == std::pair(-1, -1));
}

TEST_CASE("Ranks have levels on a host where its parts have eight each at least", "[levels]") {
    const std::vector<Locality> on_two = nodes_of(dealt(16, {0, 1}));
    CHECK(parts_of(on_two) ==
          std::vector<std::uint32_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
    // Nodes have four ranks each, but sockets eight.
    std::vector<Locality> on_four = nodes_of(dealt(16, {0, 1, 2, 3}));
    for (Locality& rank : on_four) rank.socket = rank.node / 2;
    CHECK(parts_of(on_four) ==
          std::vector<std::uint32_t>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1});
    std::vector<Locality> unbound = on_two;
    unbound[3] = {};
    CHECK(parts_of(unbound).empty());
    std::vector<Locality> uneven = nodes_of(dealt(24, {0, 1}));
    uneven[3].node = 0;
    CHECK(parts_of(uneven).empty());
    CHECK(parts_of(nodes_of(dealt(16, {0}))).empty());
    CHECK(parts_of(nodes_of(dealt(8, {0, 1}))).empty());
}

TEST_CASE("Operations give what they should where ranks are bound to parts of a machine",
          "[levels]") {
    constexpr std::size_t kCount = 70'001;
    for (const std::vector<Bound>& machine : kMachines) {
        const auto size = static_cast<std::uint32_t>(machine.size());
        std::vector<Result<void>> connected;
        MemoryStore store;
        auto ranks = connect_all(hosts_of(machine), store, connected, nodes_of(machine));
        REQUIRE(failures(connected) == "");
        for (std::uint32_t rank = 0; rank < size; ++rank)
            CHECK((ranks[rank].host_topology.host->machine_parts() != nullptr) ==
                  (machine[rank].node >= 0));
        const auto results =
            run_ranks(size, std::function([&](std::uint32_t rank) {
                          return check_calls(*ranks[rank].group, rank, size, kCount);
                      }));
        INFO(size << " ranks");
        CHECK(failures(results) == "");
    }
}

TEST_CASE("Compression between hosts works with parts of a machine", "[levels][compressed]") {
    constexpr std::size_t kCount = 300'007;
    const std::vector<Bound>& machine = kMachines.back();
    const auto size = static_cast<std::uint32_t>(machine.size());
    std::vector<Result<void>> connected;
    MemoryStore store;
    auto ranks = connect_all(hosts_of(machine), store, connected, nodes_of(machine));
    REQUIRE(failures(connected) == "");
    std::vector<std::vector<float>> out(size, std::vector<float>(kCount));
    const auto results = run_ranks(size, std::function([&](std::uint32_t rank) {
                                       std::vector<float> in(kCount);
                                       for (std::size_t i = 0; i < kCount; ++i)
                                           in[i] = static_cast<float>((i + rank) % 17);
                                       const TypedSegment all{in.data(), out[rank].data(), kCount};
                                       return CompressedAllreduce().run(
                                           *ranks[rank].group, ranks[rank].host_topology.topology,
                                           ranks[rank].host_topology.host.get(), {&all, 1},
                                           Reduce::sum, {.format = Format::f16}, 7);
                                   }));
    REQUIRE(failures(results) == "");
    for (const auto& one : out) CHECK(one == out.front());
    // Sums are whole numbers below 2,048, which f16 has exactly.
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
        std::size_t sum = 0;
        for (std::uint32_t rank = 0; rank < size; ++rank) sum += (i + rank) % 17;
        wrong += out[0][i] != static_cast<float>(sum);
    }
    CHECK(wrong == 0);
}

TEST_CASE("A process that is killed is named by ranks of all parts of its machine", "[levels]") {
    const std::vector<Bound>& machine = kMachines[1];
    constexpr std::uint32_t kLost = 6, kRanks = 16;
    std::vector<Result<void>> connected;
    MemoryStore store;
    auto ranks = connect_all(hosts_of(machine), store, connected, nodes_of(machine));
    REQUIRE(failures(connected) == "");
    const pid_t child = fork();
    if (child == 0) {
        ranks[kLost].host_topology.host->take_over();
        pause();
        _exit(2);
    }
    // Only the others call it, and those wait until they hear that the last one is gone.
    const auto results =
        run_ranks(kRanks, std::function([&](std::uint32_t rank) -> Result<void> {
                      if (rank == kLost) {
                          usleep(200'000);
                          kill(child, SIGKILL);
                          return {};
                      }
                      std::vector<float> data(1 << 20, 1.0F);
                      return ranks[rank].group->run(op::allreduce(
                          data.data(), data.data(), data.size(), DType::f32, Reduce::max));
                  }));
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        if (rank == kLost) continue;
        INFO("rank " << rank);
        REQUIRE_FALSE(results[rank].has_value());
        CHECK(results[rank].error().code == Errc::closed);
        CHECK(ranks[rank].group->lost() == kLost);
    }
}
