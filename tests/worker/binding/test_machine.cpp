#include "tests/support/catch.h"
#include "tests/worker/binding/machines.h"
#include "worker/binding/describe.h"
#include "worker/binding/gpu_numbers.h"
#include "worker/binding/machine.h"

#include <sched.h>
#include <unistd.h>
#include <map>

namespace dtrun::binding {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

std::vector<std::size_t> visible(const Machine& machine, const Variables& variables) {
    return visible_gpus(
        machine,
        [&variables](std::string_view name) -> std::optional<std::string_view> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
        },
        [](const std::string& pci) { return "GPU-of-" + pci; });
}

using Indices = std::vector<std::size_t>;

}  // namespace

TEST_CASE("processors are written and read as taskset does", "[binding]") {
    CHECK(cpu_text({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
    CHECK(cpu_text({}).empty());
    CHECK(parse_cpus("7-8, 5,0-2,1").value() == CpuList{0, 1, 2, 5, 7, 8});
    for (const char* const wrong : {"", "a", "3-1", "1,,2", "-1", "70000"})
        CHECK(parse_cpus(wrong).error().code == Errc::invalid_input);
}

TEST_CASE("what a process may use is read from /proc", "[binding]") {
    const auto own = own_cpus();
    REQUIRE(own.has_value());
    CHECK_FALSE(own->empty());
    CHECK(cpus_of(::getpid()).value() == *own);
    CHECK(cpus_of(0x7fffffff).error().code == Errc::not_found);
}

TEST_CASE("this machine is read without what may not be used", "[binding]") {
    cpu_set_t before, one;
    REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
    const unsigned cpu = own_cpus().value().back();
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    const auto machine = read_machine();
    ::sched_setaffinity(0, sizeof before, &before);
    REQUIRE(machine.has_value());
    CHECK(machine->cpus() == CpuList{cpu});
    CHECK(machine->sockets >= 1);
}

TEST_CASE("hwloc's plug-ins stay out, and the environment as it was", "[binding]") {
    REQUIRE(synthetic_machine("pack:1 core:1 pu:1").has_value());
    CHECK(::getenv("HWLOC_PLUGINS_PATH") == nullptr);
    CHECK(synthetic_machine("nonsense").error().code == Errc::invalid_input);
    CHECK(machine_of_file("/nonexistent").error().code == Errc::invalid_input);
}

TEST_CASE("a place is described by cores of sockets, with the GPU and the adapter beside it",
          "[binding]") {
    const Machine machine = eight_gpus();
    CHECK(describe_place(machine, parse_cpus("10-11").value(), 3) ==
          "cpus 10-11 (socket 0 cores 10-11), NUMA node 2, GPU 0000:45:00.0, NIC mlx5_3");
    CHECK(describe_place(machine, parse_cpus("0").value(), std::nullopt) ==
          "cpu 0 (socket 0 core 0), NUMA node 0, NIC eth0");
    CHECK(describe_place(machine, parse_cpus("15-16").value(), std::nullopt) ==
          "cpus 15-16 (socket 0 core 15, socket 1 core 0), NUMA nodes 3-4");
}

TEST_CASE("ranks see the GPUs that the environment names, in its order", "[binding]") {
    const Machine machine = eight_gpus();
    CHECK(visible(machine, {}).empty());
    CHECK(visible(machine, {{"CUDA_VISIBLE_DEVICES", "7,0"}}) == Indices{7, 0});
    CHECK(visible(machine, {{"HIP_VISIBLE_DEVICES", "3"}}) == Indices{3});
    CHECK(visible(machine, {{"CUDA_VISIBLE_DEVICES", "GPU-of-0000:41,GPU-of-0000:21:00.0"}}) ==
          Indices{2, 0});
    CHECK(visible(machine, {{"CUDA_VISIBLE_DEVICES", "99"}}).empty());
}

TEST_CASE("numbers of a Slurm step that sees its own GPUs only are those of SLURM_STEP_GPUS",
          "[binding]") {
    const Machine machine = eight_gpus();
    CHECK(visible(machine, {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"SLURM_STEP_GPUS", "4,5"}}) ==
          Indices{4, 5});
    CHECK(visible(machine, {{"CUDA_VISIBLE_DEVICES", "5"}, {"SLURM_STEP_GPUS", "4,5"}}) ==
          Indices{5});
}

}  // namespace dtrun::binding
