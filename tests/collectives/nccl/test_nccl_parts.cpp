#include "collectives/backends/nccl/bootstrap.h"
#include "collectives/backends/nccl/facts.h"
#include "collectives/backends/nccl/network.h"
#include "tests/collectives/nccl/fake_fixture.h"
#include "tests/collectives/nccl/nccl_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace dtrun::collectives::nccl {
namespace {

void put_file(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

std::string detail(const GroupFacts& facts, const std::string& name) {
    for (const auto& [key, value] : facts.details)
        if (key == name) return value;
    return "missing";
}

}  // namespace

TEST_CASE("versions of NCCL read as they are written", "[nccl]") {
    CHECK(version_text(22809) == "2.28.9");
    CHECK(version_text(21403) == "2.14.3");
    CHECK(version_text(2708) == "2.7.8");
}

TEST_CASE("a library that is named and not there is an error with its name", "[nccl]") {
    const auto nccl = NcclLibrary::open({"/nowhere/libnccl.so.2", FAKE_NCCL});
    REQUIRE_FALSE(nccl.has_value());
    CHECK(nccl.error().code == Errc::not_found);
    CHECK(nccl.error().message.starts_with("DTRUN_NCCL_LIBRARY: /nowhere/libnccl.so.2"));
    const auto runtime = NcclLibrary::open({FAKE_NCCL, "/nowhere/libcudart.so"});
    REQUIRE_FALSE(runtime.has_value());
    CHECK(runtime.error().message.starts_with("DTRUN_CUDART_LIBRARY: /nowhere/libcudart.so"));
}

TEST_CASE("a library without NCCL's functions is refused with what it lacks", "[nccl]") {
    const auto library = NcclLibrary::open({"libm.so.6", FAKE_NCCL});
    REQUIRE_FALSE(library.has_value());
    CHECK(library.error().code == Errc::invalid_input);
    CHECK(library.error().message.find("has no ncclGetVersion") != std::string::npos);
}

TEST_CASE("without a GPU's driver it is said that there is none", "[nccl]") {
    if (std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/kfd")) {
        WARN("SKIPPED: this host has a GPU");
        return;
    }
    const auto library = NcclLibrary::open({});
    REQUIRE_FALSE(library.has_value());
    CHECK(library.error().code == Errc::not_found);
    CHECK(library.error().message.find("river") != std::string::npos);
}

TEST_CASE("a driver without a GPU is told apart from one that fails", "[nccl]") {
    const auto library = fake();
    CHECK(library->name() == "NCCL 2.28.9");
    CHECK(library->device_count() == 8);
    {
        const Variable none("FAKE_GPU_ERROR", "35");
        const auto count = library->device_count();
        REQUIRE_FALSE(count.has_value());
        CHECK(count.error().message ==
              "no GPU can be used: CUDA driver version is insufficient for CUDA runtime version");
    }
    const Variable none("FAKE_GPU_COUNT", "0");
    REQUIRE_FALSE(library->device_count().has_value());
}

TEST_CASE("pip's packages are found whatever folder CUDA's version puts them in", "[nccl]") {
    const TempDir site;
    const std::filesystem::path root = site.path();
    put_file(root / "nvidia/nccl/lib/libnccl.so.2", "");
    put_file(root / "nvidia/cu13/lib/libcudart.so.13", "");
    CHECK(pip_paths(root.string(), "libnccl.so.2") ==
          std::vector{(root / "nvidia/nccl/lib/libnccl.so.2").string()});
    CHECK(pip_paths(root.string(), "libcudart.so.13") ==
          std::vector{(root / "nvidia/cu13/lib/libcudart.so.13").string()});
    CHECK(pip_paths(root.string(), "libcudart.so.12").empty());
    CHECK(pip_paths("/nowhere", "libnccl.so.2").empty());
}

TEST_CASE("every unique id is made by the first of the ranks that share it", "[nccl]") {
    const Settings settings;
    CHECK(ids_for(256, settings, true) == 1);
    CHECK(ids_for(257, settings, true) == 2);
    CHECK(ids_for(1024, settings, true) == 4);
    CHECK(ids_for(1024, settings, false) == 1);
    CHECK(id_made_by(0, 7, 3) == 0u);
    CHECK(id_made_by(3, 7, 3) == 1u);
    CHECK(id_made_by(5, 7, 3) == 2u);
    for (const std::uint32_t size : {1u, 2u, 7u, 256u, 1000u})
        for (std::uint32_t ids = 1; ids <= std::min(size, 9u); ++ids) {
            std::set<std::uint32_t> made;
            std::uint32_t makers = 0;
            for (std::uint32_t rank = 0; rank < size; ++rank)
                if (const auto id = id_made_by(rank, size, ids)) {
                    made.insert(*id);
                    ++makers;
                }
            INFO(size << " ranks, " << ids << " ids");
            CHECK(makers == ids);
            CHECK(made.size() == ids);
            CHECK(*made.rbegin() == ids - 1);
        }
}

TEST_CASE("unique ids survive the store, and other versions are refused", "[nccl]") {
    const auto library = fake();
    UniqueId id{};
    for (std::size_t i = 0; i < sizeof id.bytes; ++i) id.bytes[i] = static_cast<char>(i * 37);
    const std::string text = encode_id(id, 22809);
    const auto read = decode_id(text, *library);
    REQUIRE(read.has_value());
    CHECK(std::string(read->bytes, sizeof read->bytes) == std::string(id.bytes, sizeof id.bytes));

    const auto other = decode_id(encode_id(id, 22703), *library);
    REQUIRE_FALSE(other.has_value());
    CHECK(other.error().message ==
          "rank 0 has 2.27.3, this rank 2.28.9: all ranks need the same version");
    for (const std::string& bad : {std::string(), std::string("22809"), text.substr(0, 40),
                                   text + "00", "22809 " + std::string(256, 'x')}) {
        const auto refused = decode_id(bad, *library);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().code == Errc::invalid_input);
    }
}

TEST_CASE("interfaces and addresses become NCCL's setting", "[nccl]") {
    const std::vector<InterfaceAddress> host{{"lo", "127.0.0.1"},    {"lo", "::1"},
                                             {"eth0", "10.0.0.5"},   {"eth0", "fe80::1"},
                                             {"ib0", "192.168.9.1"}, {"v6", "fd00::2"}};
    const auto choose = [&](std::vector<std::string> wanted, const std::string& address = "") {
        return choose_sockets(wanted, address, host);
    };
    CHECK(choose({"eth0"})->interfaces == "=eth0");
    CHECK(choose({"ib0", "eth0", "gone0"})->interfaces == "=ib0,eth0");
    CHECK(choose({"10.0.0.5"})->interfaces == "=eth0");
    CHECK_FALSE(choose({"eth0"})->ipv6);
    CHECK(choose({"fd00::2"})->ipv6);
    CHECK(choose({}, "192.168.9.1")->interfaces == "=ib0");
    CHECK(choose({}, "203.0.113.7")->interfaces.empty());
    CHECK(choose({}, "")->interfaces.empty());
    CHECK(choose({}, "127.0.0.1")->interfaces.empty());
    CHECK(choose({"lo"}, "127.0.0.1")->interfaces == "=lo");
    CHECK(choose({"ib0"}, "10.0.0.5")->interfaces == "=ib0");
    const auto none = choose({"eth7", "10.9.9.9"});
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().code == Errc::invalid_input);
    CHECK(none.error().message == "no network interface or address eth7, 10.9.9.9 on this host");
}

TEST_CASE("NCCL's log tells which roads it takes", "[nccl]") {
    CHECK(roads_of("").empty());
    CHECK(roads_of(
              "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
              "h:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
              "h:1:2 [0] NCCL INFO Channel 00 : 1[1] -> 2[2] via SHM/direct/direct\n"
              "h:1:2 [0] NCCL INFO Channel 00/0 : 7[7] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
              "h:1:2 [0] NCCL INFO Channel 01/0 : 7[7] -> 0[0] [send] via NET/IB/3(2)/GDRDMA/Shared"
              "\nsomething via nothing at all\nat the end via ") ==
          std::vector<std::string>{"P2P/CUMEM", "SHM/direct/direct", "NET/IB/GDRDMA"});
}

TEST_CASE("whether GPUDirect is used is told with the reason if not", "[nccl]") {
    const auto library = fake();
    const TempDir folder;
    const std::filesystem::path root = folder.path();
    std::map<std::string, std::string> environment;
    const HostView host{[&](const char* name) { return environment[name]; }, root.string()};
    const std::string own = "a 0000:10:00.0";
    std::vector<std::string> others{"a 0000:11:00.0"};
    const auto tell = [&](const char* what) {
        return detail(nccl_facts(*library, host, 0, own, others), what);
    };
    CHECK(tell("GPU") == "0 (0000:10:00.0)");
    CHECK(tell("GPUDirect P2P") == "yes");
    CHECK(tell("GPUDirect RDMA") == "no: no rank on another host");
    environment["NCCL_P2P_DISABLE"] = "1";
    CHECK(tell("GPUDirect P2P") == "no: NCCL_P2P_DISABLE=1");
    environment.clear();
    {
        const Variable no("FAKE_GPU_NO_PEER", "1");
        CHECK(tell("GPUDirect P2P").starts_with("no: the GPUs 0000:10:00.0 and 0000:11:00.0"));
    }
    others = {"a 0000:77:00.0"};
    CHECK(tell("GPUDirect P2P").starts_with("unknown: "));

    others = {"b 0000:10:00.0"};
    CHECK(tell("GPUDirect P2P") == "no: no other rank on this host");
    CHECK(tell("GPUDirect RDMA").starts_with("no: no network card with RDMA"));
    std::filesystem::create_directories(root / "sys/class/infiniband/mlx5_0");
    CHECK(tell("GPUDirect RDMA").starts_with("no: neither the module nvidia_peermem nor DMA-BUF"));
    put_file(root / "proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07");
    CHECK(tell("GPUDirect RDMA") == "yes, if NCCL makes use of DMA-BUF");
    std::filesystem::create_directories(root / "sys/module/nvidia_peermem");
    CHECK(tell("GPUDirect RDMA") == "yes, if NCCL makes use of nvidia_peermem");
    environment["NCCL_IB_DISABLE"] = "1";
    CHECK(tell("GPUDirect RDMA") == "no: NCCL_IB_DISABLE=1");
}

TEST_CASE("NCCL's own log is believed before anything else", "[nccl]") {
    const auto library = fake();
    const TempDir folder;
    const std::filesystem::path root = folder.path();
    std::map<std::string, std::string> environment;
    const HostView host{[&](const char* name) { return environment[name]; }, root.string()};
    const std::vector<std::string> others{"a 0000:11:00.0", "b 0000:10:00.0"};
    const auto facts = [&] { return nccl_facts(*library, host, 0, "a 0000:10:00.0", others); };
    environment["NCCL_SOCKET_IFNAME"] = "=eth0";
    CHECK(facts().version == "NCCL 2.28.9");
    CHECK(facts().transport == "as NCCL chooses, sockets over eth0");

    environment["NCCL_DEBUG"] = "INFO";
    environment["NCCL_DEBUG_FILE"] = (root / "nccl.%p.100%%").string();
    const auto log = root / fmt::format("nccl.{}.100%", ::getpid());
    put_file(log, "x via P2P/IPC\nx via NET/IB/0/GDRDMA\n");
    CHECK(facts().transport == "P2P/IPC, NET/IB/GDRDMA");
    CHECK(detail(facts(), "GPUDirect P2P") == "yes");
    CHECK(detail(facts(), "GPUDirect RDMA") == "yes");

    put_file(log, "x via SHM/direct/direct\nx via NET/IB/0\n");
    std::filesystem::create_directories(root / "sys/class/infiniband/mlx5_0");
    std::filesystem::create_directories(root / "sys/module/nvidia_peermem");
    CHECK(detail(facts(), "GPUDirect P2P") == "no: NCCL goes through SHM/direct/direct");
    CHECK(detail(facts(), "GPUDirect RDMA") == "no: NCCL goes through NET/IB without it");
}

}  // namespace dtrun::collectives::nccl
