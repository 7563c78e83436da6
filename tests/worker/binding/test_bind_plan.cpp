#include "base/fd.h"
#include "base/process/command_output.h"
#include "base/strings.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/worker/binding/machines.h"
#include "worker/binding/bind_plan.h"

#include <fmt/format.h>
#include <map>

namespace dtrun::binding {
namespace {

constexpr const char* kTwoSockets = "pack:2 numa:1 core:8 pu:1";
constexpr const char* kFourNodes = "pack:2 numa:2 core:4 pu:2";

/// "0-1 2-3": what each rank gets, or the error.
std::string given(const Machine& machine, const BindingRequest& request, std::uint32_t ranks,
                  const std::vector<std::size_t>& visible = {}) {
    const auto plan = plan_binding(machine, request, ranks, visible);
    if (!plan) return plan.error().message;
    std::string text;
    for (const BoundPlace& place : plan->places)
        text += (text.empty() ? "" : " ") + cpu_text(place.cpus);
    return text;
}

BindingRequest request(BindTo to, MapWithin by = MapWithin::slot, std::uint32_t cpus_per_rank = 0) {
    BindingRequest request;
    request.to = to;
    request.by = by;
    request.cpus_per_rank = cpus_per_rank;
    return request;
}

/// Processors of "[BB/..][../..]", each sign of which is one.
std::string cpus_of_mask(std::string_view mask) {
    CpuList cpus;
    unsigned cpu = 0;
    for (const char sign : mask) {
        if (sign == 'B') cpus.push_back(cpu);
        if (sign == 'B' || sign == '.') ++cpu;
    }
    return cpu_text(cpus);
}

/// The processors of "0x00ff0000,0x0000000f", as hwloc writes a set.
std::string cpus_of_hex(std::string_view hex) {
    CpuList cpus;
    const auto words = split(hex, ',');
    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto bits = std::stoul(std::string(words[words.size() - 1 - i]), nullptr, 16);
        for (unsigned bit = 0; bit < 32; ++bit)
            if ((bits >> bit & 1u) != 0) cpus.push_back(static_cast<unsigned>(i) * 32 + bit);
    }
    return cpu_text(cpus);
}

const std::map<std::string_view, BindTo> kTo{
    {"core", BindTo::core}, {"l3", BindTo::l3}, {"numa", BindTo::numa}, {"socket", BindTo::socket}};
const std::map<std::string_view, MapWithin> kBy{{"slot", MapWithin::slot},
                                                {"l3", MapWithin::l3},
                                                {"numa", MapWithin::numa},
                                                {"socket", MapWithin::socket}};

}  // namespace

TEST_CASE("ranks get the processors that Open MPI gives them", "[binding]") {
    const auto text = read_file(DTRUN_BINDING_DATA "/open_mpi.txt");
    REQUIRE(text.has_value());
    int compared = 0;
    for (const std::string_view line : split(*text, '\n')) {
        if (line.empty() || line.starts_with('#')) continue;
        INFO(line);
        const auto parts = split(line, ';');
        REQUIRE(parts.size() == 3);
        const auto words = split(trim(parts[1]), ' ');
        const auto masks = split(trim(parts[2]), ' ');
        std::string expected;
        for (const std::string_view mask : masks)
            expected += (expected.empty() ? "" : " ") + cpus_of_mask(mask);
        const Machine machine = machine_like(std::string(parts[0]));
        const auto cores = static_cast<std::uint32_t>(to_int(words[2], 0, 100).value());
        CHECK(given(machine, request(kTo.at(words[0]), kBy.at(words[1]), cores),
                    static_cast<std::uint32_t>(masks.size())) == expected);
        ++compared;
    }
    CHECK(compared > 40);
}

TEST_CASE("equal shares are those of hwloc-distrib", "[binding]") {
    if (!command_output({"hwloc-distrib", "--version"}, Captured::out, std::chrono::seconds(10)))
        return skip_case("no hwloc-distrib");
    for (const char* const topology : {kTwoSockets, kFourNodes, "pack:1 numa:1 core:6 pu:2"})
        for (const std::uint32_t ranks : {1u, 2u, 4u, 8u, 16u}) {
            const auto output =
                command_output({"hwloc-distrib", "-i", topology, std::to_string(ranks)},
                               Captured::out, std::chrono::seconds(10));
            REQUIRE(output.has_value());
            std::string expected;
            for (const std::string_view line : split(trim(output->text), '\n'))
                expected += (expected.empty() ? "" : " ") + cpus_of_hex(line);
            const Machine machine = machine_like(topology);
            if (machine.cores.size() % ranks != 0)
                continue;  // hwloc gives what is left over to some
            INFO(topology << ", " << ranks << " ranks");
            CHECK(given(machine, request(BindTo::share), ranks) == expected);
        }
}

TEST_CASE("shares are equal and cross no NUMA node where cores are left over", "[binding]") {
    CHECK(given(machine_like(kTwoSockets), request(BindTo::share), 3) == "0-3 4-7 8-11");
    CHECK(given(machine_like(kFourNodes), request(BindTo::share), 3) == "0-7 8-15 16-23");
    // One node has two processors for us, the other eight.
    const Machine some = restrict_to(machine_like(kTwoSockets), parse_cpus("0-1,8-15").value());
    CHECK(given(some, request(BindTo::share), 2) == "8-11 12-15");
    CHECK(given(some, request(BindTo::share), 1) == "0-1,8-15");
    // More ranks than halves of nodes: they are spread evenly.
    CHECK(given(machine_like(kTwoSockets), request(BindTo::share), 9) == "0 1 2 3 4 8 9 10 11");
}

TEST_CASE("several cores of a rank are of one NUMA node wherever that can be", "[binding]") {
    // Open MPI gives the third rank 6-8, of two nodes.
    const auto three = request(BindTo::core, MapWithin::slot, 3);
    CHECK(given(machine_like(kTwoSockets), three, 4) == "0-2 3-5 8-10 11-13");
    CHECK(given(machine_like(kTwoSockets), three, 5) == "0-2 3-5 8-10 11-13 6-7,14");
}

TEST_CASE("too few cores are an error that says the arithmetic", "[binding]") {
    const Machine machine = machine_like(kTwoSockets);
    auto three = request(BindTo::core, MapWithin::slot, 3);
    CHECK(
        given(machine, three, 6) ==
        "6 ranks x 3 cores = 18 cores, but there are 16; lower --cpus-per-rank, start fewer ranks "
        "here, or say --oversubscribe");
    CHECK(given(machine, request(BindTo::core), 17) ==
          "17 ranks need a core each, but there are 16; start fewer ranks here, or say "
          "--oversubscribe");
    CHECK(given(machine, request(BindTo::numa, MapWithin::slot, 5), 3) ==
          "3 ranks x 5 cores = 15, but no NUMA node has room for 5 more; lower "
          "--cpus-per-rank, start fewer ranks here, or say --oversubscribe");
    three.overlap = true;
    CHECK(given(machine, three, 6) == "0-2 3-5 8-10 11-13 6-7,14 0-2");
    auto one = request(BindTo::core);
    one.overlap = true;
    CHECK(given(restrict_to(machine, {2, 3}), one, 3) == "2 3 2");
    CHECK(given(restrict_to(machine, {}), one, 1) == "there is no processor to bind to");
}

TEST_CASE("a mask that was there before is never left", "[binding]") {
    const Machine machine = restrict_to(machine_like(kFourNodes), parse_cpus("2,3,9-12").value());
    for (const BindTo to : {BindTo::none, BindTo::core, BindTo::share, BindTo::l3, BindTo::numa,
                            BindTo::socket, BindTo::automatic})
        for (const std::uint32_t ranks : {1u, 2u, 3u}) {
            const auto plan = plan_binding(machine, request(to), ranks);
            REQUIRE(plan.has_value());
            for (const BoundPlace& place : plan->places) {
                CHECK_FALSE(place.cpus.empty());
                CHECK(common_cpus(place.cpus, machine.cpus()) == place.cpus);
            }
        }
    // Half a core is a core.
    CHECK(given(machine, request(BindTo::core), 3) == "2-3 9 10-11");
}

TEST_CASE("ranks with GPUs run beside these, not round the NUMA nodes", "[binding]") {
    const Machine machine = eight_gpus();
    REQUIRE(machine.gpus.size() == 8);
    CHECK(machine.gpus.front().name == "0000:21:00.0");  // not the chip that draws the console
    CHECK(given(machine, request(BindTo::automatic), 8) ==
          "4-7 4-7 8-11 8-11 24-27 24-27 28-31 28-31");
    CHECK(given(machine, request(BindTo::gpu), 8) == "4-5 6-7 8-9 10-11 24-25 26-27 28-29 30-31");
    CHECK(given(machine, request(BindTo::socket, MapWithin::gpu), 8) ==
          "0-15 0-15 0-15 0-15 16-31 16-31 16-31 16-31");
    CHECK(given(machine, request(BindTo::core, MapWithin::gpu, 2), 4) == "4-5 6-7 8-9 10-11");
    // Ranks see the last two GPUs only.
    CHECK(given(machine, request(BindTo::gpu), 2, {6, 7}) == "28-29 30-31");
    // More ranks than GPUs do not belong to these.
    CHECK(given(machine, request(BindTo::automatic), 16).starts_with("0-1 2-3 4-5"));
    CHECK(given(machine_like(kTwoSockets), request(BindTo::gpu), 1) ==
          "there is no GPU to bind to");
    CHECK(given(machine_like(kTwoSockets), request(BindTo::automatic), 2) == "0-7 8-15");
}

TEST_CASE("a rank has as many threads as it has cores of its own", "[binding]") {
    const auto threads = [](const Machine& machine, const BindingRequest& request,
                            std::uint32_t ranks) {
        std::vector<std::uint32_t> numbers;
        const auto plan = plan_binding(machine, request, ranks);
        REQUIRE(plan.has_value());
        for (const BoundPlace& place : plan->places) numbers.push_back(place.threads);
        return numbers;
    };
    using Numbers = std::vector<std::uint32_t>;
    const Machine machine = machine_like(kFourNodes);  // two hardware threads make a core
    CHECK(threads(machine, request(BindTo::core), 2) == Numbers{1, 1});
    CHECK(threads(machine, request(BindTo::share), 2) == Numbers{8, 8});
    // Three ranks share two of the nodes.
    CHECK(threads(machine, request(BindTo::numa), 6) == Numbers{2, 2, 4, 4, 2, 2});
    CHECK(threads(machine, request(BindTo::none, MapWithin::slot, 3), 2) == Numbers{3, 3});
}

TEST_CASE("automatic binding leaves ranks alone that are more than the cores", "[binding]") {
    const auto plan =
        plan_binding(machine_like("pack:1 numa:1 core:2 pu:1"), request(BindTo::automatic), 3);
    REQUIRE(plan.has_value());
    CHECK_FALSE(plan->bound);
    CHECK(plan->note == "not bound: 3 ranks have 2 cores");
    CHECK(plan->places.at(2).cpus == CpuList{0, 1});
}

TEST_CASE("a list of processors must be one that may be used", "[binding]") {
    auto list = request(BindTo::share);
    list.cpus = "0,2-4,12";
    CHECK(given(machine_like(kTwoSockets), list, 2) == "0,2 3-4");
    list.cpus = "14-17";
    CHECK(given(machine_like(kTwoSockets), list, 2) ==
          "processors 14-17 are asked for, of which 16-17 may not be used here");
}

}  // namespace dtrun::binding
