#include "base/interfaces.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/placement.h"
#include "launcher/plan/host_shape.h"
#include "launcher/plan/machine_facts.h"
#include "tests/support/catch.h"

#include <fmt/format.h>

using namespace dtrun;
using namespace dtrun::plan;
using Catch::Contains;
using Count = HostShape::Count;

namespace {

constexpr MachineFacts kHere{.gpus = 2, .gpus_present = 4, .cpus = 6, .numa_nodes = 2};

HostShape shape_of(Count count, int number = 0) {
    HostShape shape;
    shape.count = count;
    shape.number = number;
    shape.count_flag = "--nproc-per-node N";
    return shape;
}

HostShape nodes(int min, int max) {
    HostShape shape;
    shape.hosts_min = min;
    shape.hosts_max = max;
    shape.hosts_flag = fmt::format("--nnodes {}:{}", min, max);
    shape.one_command = "name them";
    return shape;
}

Shapeable named(const char* hosts, bool oversubscribe = false) {
    return {parse_hosts(hosts).value(), nullptr, true, oversubscribe};
}

/// This machine, as the job finds it when nobody names a host.
Shapeable this_machine(const HostShape& shape, const MachineFacts& here = kHere) {
    Host host;
    host.name = "localhost";
    size_this_machine(shape, host, here);
    return {{host}, nullptr, false, false};
}

/// Where ranks are put: "s1:0,1 s2:0", each with its slots.
std::string placed(const HostShape& shape, const Shapeable& given,
                   const MachineFacts& here = kHere) {
    const auto shaped = shape_hosts(shape, given, here);
    if (!shaped) return shaped.error().message;
    const auto placement = place_ranks(shaped->hosts, {shaped->world_size, MapBy::slot, true});
    if (!placement) return placement.error().message;
    std::string text;
    int host = -1;
    for (const RankPlace& place : placement->ranks) {
        const bool another = place.host != host;
        if (another)
            text += (text.empty() ? "" : " ") +
                    placement->hosts[static_cast<std::size_t>(place.host)].name + ":";
        text += fmt::format("{}{}", another ? "" : ",", place.slot);
        host = place.host;
    }
    return text;
}

Allocation slurm(std::vector<Allocation::Node> nodes) {
    Allocation allocation;
    allocation.scheduler = Scheduler::slurm;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        Host host;
        host.name = fmt::format("n{}", i + 1);
        host.slots = 1;
        host.slots_max = 16;
        allocation.hosts.push_back(host);
    }
    allocation.nodes = std::move(nodes);
    return allocation;
}

}  // namespace

TEST_CASE("A number of ranks for each host counts on each of them", "[launcher][torchrun]") {
    CHECK(placed(shape_of(Count::number, 2), named("s1,s2")) == "s1:0,1 s2:0,1");
    CHECK(placed(shape_of(Count::number, 2), named("s1:2,s2:4")) == "s1:0,1 s2:0,1");
    CHECK(placed(shape_of(Count::number, 3), this_machine(shape_of(Count::number, 3))) ==
          "localhost:0,1,2");
    CHECK(placed(shape_of(Count::slots), named("s1:2,s2:1")) == "s1:0,1 s2:0");
}

TEST_CASE("More ranks than a host's slots need --oversubscribe", "[launcher][torchrun]") {
    const HostShape shape = shape_of(Count::number, 4);
    CHECK(placed(shape, named("s1:4,s2:2")) ==
          "--nproc-per-node N, but s2 has 2 slots; lower it, give the host more, or "
          "--oversubscribe");
    CHECK(placed(shape, named("s1:4,s2:1")) ==
          "--nproc-per-node N, but s2 has 1 slot; lower it, give the host more, or "
          "--oversubscribe");
    CHECK(placed(shape, named("s1:6,s2:2", true)) == "s1:0,1,2,3 s2:0,1,0,1");
}

TEST_CASE("The first hosts are taken, and too few are an error", "[launcher][torchrun]") {
    CHECK(placed(nodes(2, 2), named("s1:2,s2:1,s3:4")) == "s1:0,1 s2:0");
    CHECK(placed(nodes(2, 4), named("s1:1,s2:1,s3:1")) == "s1:0 s2:0 s3:0");
    const auto elastic = shape_hosts(nodes(2, 4), named("s1,s2,s3"), kHere);
    REQUIRE(elastic.has_value());
    CHECK(elastic->notes ==
          std::vector<std::string>{"--nnodes 2:4: 3 hosts are there, and no more can join later"});
    CHECK(shape_hosts(nodes(3, 3), named("s1,s2,s3"), kHere)->notes.empty());
    CHECK(shape_hosts(nodes(1, 4), named("s1"), kHere)->notes ==
          std::vector<std::string>{
              "--nnodes 1:4: only one host is there, and no more can join later"});
    CHECK(placed(nodes(4, 4), named("s1:2,s2:1")) ==
          "--nnodes 4:4, but 2 hosts are there: s1 and s2");
    CHECK(placed(nodes(2, 2), named("s1:2")) == "--nnodes 2:2, but only one host is there: s1");
    CHECK(placed(nodes(2, 2), this_machine(nodes(2, 2))) ==
          "--nnodes 2:2, but no hosts are named, so there is this machine only; name them");
    HostShape by_hand = nodes(2, 2);
    by_hand.by_hand = "--rdzv-endpoint h:1";
    CHECK(placed(by_hand, this_machine(by_hand)) ==
          "--nnodes 2:2 (and --rdzv-endpoint h:1), but no hosts are named, so there is this "
          "machine only; name them");
    const Allocation allocation = slurm({{}, {}});
    CHECK(placed(nodes(3, 3), {allocation.hosts, &allocation}) ==
          "--nnodes 3:3: Slurm has given this job 2: n1 and n2");
}

TEST_CASE("An elastic job takes all hosts, those above the most as spares, and expects more",
          "[launcher][torchrun][elastic]") {
    HostShape shape = nodes(1, 2);
    shape.elastic = true;
    CHECK(placed(shape, named("s1,s2,s3")) == "s1:0 s2:0 s3:0");
    CHECK(shape_hosts(shape, named("s1"), kHere)->notes.empty());
}

TEST_CASE("An elastic command of several nodes is no job of this machine alone",
          "[launcher][torchrun]") {
    HostShape shape = nodes(1, 2);
    shape.by_hand = "--rdzv-endpoint 192.0.2.1:29400";
    shape.meets_at = "192.0.2.1";
    const char* const refused =
        "--nnodes 1:2 (and --rdzv-endpoint 192.0.2.1:29400), but no hosts are named, so there is "
        "this machine only; name them";
    CHECK(placed(shape, this_machine(shape)) == refused);
    CHECK(placed(shape, named("s1,s2")) == "s1:0 s2:0");
    CHECK(placed(shape, named("s1")) == "s1:0");
    const Allocation allocation = slurm({{}});
    CHECK(placed(shape, {allocation.hosts, &allocation}) == "n1:0");
    for (const std::string& here :
         {std::string("localhost"), std::string("127.0.0.1"), std::string("::1"), host_name()}) {
        shape.meets_at = here;
        CHECK(placed(shape, this_machine(shape)) == "localhost:0");
    }
    HostShape one = nodes(1, 1);
    one.meets_at = "192.0.2.1";
    CHECK(placed(one, this_machine(one)) == "localhost:0");
    HostShape unsaid;
    unsaid.meets_at = "192.0.2.1";
    CHECK(placed(unsaid, this_machine(unsaid)) == "localhost:0");
}

TEST_CASE("The same command on another node is an error, but not of a step's other tasks",
          "[launcher][torchrun]") {
    HostShape shape = nodes(2, 2);
    shape.by_hand = "--node-rank 1";
    shape.not_first = true;
    CHECK(placed(shape, named("s1,s2")) ==
          "--node-rank 1: dtrun is run once, not on every node; name them");
    Allocation allocation = slurm({{}, {}});
    CHECK_THAT(placed(shape, {allocation.hosts, &allocation}), Contains("is run once"));
    allocation.is_bystander = true;
    CHECK(placed(shape, {allocation.hosts, &allocation}) == "n1:0 n2:0");
}

TEST_CASE("Devices are counted where they can be", "[launcher][torchrun]") {
    const auto here = [](Count count, MachineFacts facts) {
        return placed(shape_of(count), this_machine(shape_of(count), facts), facts);
    };
    CHECK(here(Count::gpu, kHere) == "localhost:0,1");
    CHECK(here(Count::automatic, kHere) == "localhost:0,1");
    CHECK(here(Count::automatic, {.cpus = 3}) == "localhost:0,1,2");
    CHECK(here(Count::cpu, kHere) == "localhost:0,1,2,3,4,5");
    CHECK(here(Count::gpu, {.cpus = 3}) == "--nproc-per-node N: this machine shows no NVIDIA GPU");
    CHECK(here(Count::accelerator, kHere) == "localhost:0,1,2,3");
    CHECK(here(Count::accelerator, {.cpus = 8, .numa_nodes = 2}) == "localhost:0,1");

    CHECK(placed(shape_of(Count::gpu), named(host_name().c_str())) == host_name() + ":0,1");
    CHECK(placed(shape_of(Count::gpu), named("s1:3,s2:2")) == "s1:0,1,2 s2:0,1");
    CHECK(placed(shape_of(Count::automatic), named("s1:3,s2:2")) == "s1:0,1,2 s2:0,1");
    CHECK(placed(shape_of(Count::accelerator), named("s1,s2")) == "s1:0 s2:0");
    CHECK(placed(shape_of(Count::gpu), named("s1,s2")) ==
          "--nproc-per-node N: what s1 has is not known here; say how many ranks each host has, as "
          "in -H s1:8, or give a number");
}

TEST_CASE("A batch system's nodes have what it says of them", "[launcher][torchrun]") {
    const Allocation allocation = slurm({{.cpus = 4, .gpus = 2}, {.cpus = 2, .gpus = 1}});
    const Shapeable given{allocation.hosts, &allocation};
    CHECK(placed(shape_of(Count::gpu), given) == "n1:0,1 n2:0");
    CHECK(placed(shape_of(Count::automatic), given) == "n1:0,1 n2:0");
    CHECK(placed(shape_of(Count::cpu), given) == "n1:0,1,2,3 n2:0,1");
    CHECK(placed(shape_of(Count::number, 3), given) == "n1:0,1,2 n2:0,1,2");
    CHECK(placed(shape_of(Count::accelerator), given) == "n1:0,1 n2:0");
    const Allocation plain = slurm({{.cpus = 4}, {.cpus = 2}});
    CHECK(placed(shape_of(Count::automatic), {plain.hosts, &plain}) == "n1:0,1,2,3 n2:0,1");
    CHECK(placed(shape_of(Count::accelerator), {plain.hosts, &plain}) == "n1:0 n2:0");
    CHECK_THAT(placed(shape_of(Count::gpu), {plain.hosts, &plain}), Contains("what n1 has"));
}

TEST_CASE("Chosen slots keep their numbers", "[launcher][torchrun][deepspeed]") {
    HostShape devices = shape_of(Count::accelerator);
    devices.devices_here = {3, 1};
    CHECK(placed(devices, this_machine(devices)) == "localhost:3,1");
    Shapeable filtered = named("s1:4");
    filtered.hosts[0].slot_ids = {1, 3};
    CHECK(placed(shape_of(Count::accelerator), filtered) == "s1:1,3");
    CHECK(placed(shape_of(Count::number, 1), filtered) == "s1:1");
    CHECK_THAT(placed(shape_of(Count::number, 3), filtered), Contains("s1 has 2 slots"));
}

TEST_CASE("CUDA_VISIBLE_DEVICES hides devices", "[launcher][torchrun]") {
    const auto [list, visible] = GENERATE(table<std::string, int>({
        {"0,1", 2},
        {"", 0},
        {"-1", 0},
        {"NoDevFiles", 0},
        {"2,-1,3", 1},
        {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6, 1", 2},
    }));
    CAPTURE(list);
    const std::vector<std::string> environment = {"CUDA_VISIBLE_DEVICES=" + list};
    CHECK(visible_devices(8, environment) == visible);
    CHECK(visible_devices(0, environment) == 0);
    CHECK(visible_devices(8, {}) == 8);
}

TEST_CASE("This machine has at least a processor and a NUMA node", "[launcher][torchrun]") {
    const MachineFacts facts = machine_facts({});
    CHECK(facts.cpus >= 1);
    CHECK(facts.numa_nodes >= 1);
    CHECK(facts.gpus == facts.gpus_present);
}
