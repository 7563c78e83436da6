#include "base/json_writer.h"
#include "lab/rank/host_facts.h"
#include "lab/rank/rank_comm.h"
#include "lab/rank/run_program.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <limits>

using namespace dtrun::lab;
using namespace dtrun::lab::rank;
using namespace std::chrono_literals;

TEST_CASE("a line of JSON can be read, whatever is in it", "[lab][rank]") {
    const std::string text =
        dtrun::JsonWriter()
            .add("text", "\"\\\n\t\x01 \xc3\xa4 \xff \xed\xa0\x80 \xf0\x9f")
            .add("number", 0.1)
            .add("nan", std::numeric_limits<double>::quiet_NaN())
            .add("large", std::uint64_t{1} << 63)
            .add("list", std::vector{dtrun::JsonWriter().add("a", -1), dtrun::JsonWriter()})
            .add("object", {{"key", "value"}})
            .text();
    CHECK(text.find('\n') == text.npos);
    const auto object = boost::json::parse(text).as_object();
    const std::string lost = "\xef\xbf\xbd";
    CHECK(object.at("text").as_string() ==
          "\"\\\n\t\x01 \xc3\xa4 " + lost + " " + lost + lost + lost + " " + lost + lost);
    CHECK(object.at("number").as_double() == Approx(0.1));
    CHECK(object.at("nan").is_null());
    CHECK(object.at("large").to_number<std::uint64_t>() == std::uint64_t{1} << 63);
    CHECK(object.at("list").as_array().at(0).at("a").as_int64() == -1);
    CHECK(object.at("object").at("key").as_string() == "value");
}

TEST_CASE("the host's own files are understood", "[lab][rank]") {
    CHECK(parse_os("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n") ==
          "Debian GNU/Linux 12 (bookworm)");
    CHECK(parse_os("") == "");
    CHECK(parse_cpu("processor\t: 0\nmodel name\t: EPYC: a model\n") == "EPYC: a model");
    CHECK(parse_cpu("processor\t: 0\n") == "");
    CHECK(parse_memory("MemTotal:       24689204 kB\nMemFree: 1 kB\n") == 24'689'204ull * 1'024);
    CHECK(parse_memory("nothing") == 0);
}

TEST_CASE("a network card has the name that pci.ids gives it", "[lab][rank]") {
    const std::string ids =
        "# comment\n15b3  Mellanox Technologies\n\t1013  MT27700 Family [ConnectX-4]\n"
        "\t1017  MT27800 Family [ConnectX-5]\n\t\t15b3 0006  ConnectX-5 EN\n8086  Intel\n"
        "\t1017  something else\nC 02  Network controller\n";
    CHECK(device_model(ids, "0x15b3", "0x1017") ==
          "Mellanox Technologies MT27800 Family [ConnectX-5]");
    CHECK(device_model(ids, "0x15b3", "0xffff") == "Mellanox Technologies ffff");
    CHECK(device_model("", "0x15b3", "0x1017") == "Mellanox 1017");
    CHECK(device_model("", "0x4242", "0x1017") == "4242:1017");
    CHECK(device_model(ids, "", "") == "");
}

TEST_CASE("interfaces without a device count only where there is no other", "[lab][rank]") {
    const dtrun::TempDir folder;
    namespace fs = std::filesystem;
    const fs::path root = folder.path();
    for (const char* name : {"lo", "veth1", "br0"}) fs::create_directory(root / name);
    std::ignore = folder.write("br0/operstate", "down\n");
    auto nics = list_nics(folder.path(), "");
    REQUIRE(nics.size() == 1);
    CHECK(nics[0].name == "veth1");
    CHECK(std::isnan(nics[0].speed_mbit));
    fs::create_directories(root / "eth0/device/infiniband");
    std::ignore = folder.write("eth0/speed", "100000\n");
    std::ignore = folder.write("eth0/device/vendor", "0x15b3\n");
    std::ignore = folder.write("eth0/device/device", "0x1017\n");
    fs::create_symlink("/sys/bus/pci/drivers/mlx5_core", root / "eth0/device/driver");
    nics = list_nics(folder.path(), "");
    REQUIRE(nics.size() == 1);
    CHECK(nics[0].name == "eth0");
    CHECK(nics[0].model == "Mellanox 1017 (RDMA)");
    CHECK(nics[0].driver == "mlx5_core");
    CHECK(nics[0].speed_mbit == 100'000);
    CHECK(list_nics(folder.path() + "/missing", "").empty());
}

TEST_CASE("the line rate is that of the interface which a transport names", "[lab][rank]") {
    const dtrun::TempDir folder;
    namespace fs = std::filesystem;
    const fs::path root = folder.path();
    for (const char* name : {"veth1", "bond0", "eth0", "eth1", "lo"})
        fs::create_directory(root / name);
    for (const char* name : {"eth0/device", "eth1/device"}) fs::create_directory(root / name);
    std::ignore = folder.write("veth1/speed", "10000\n");  // which means nothing
    std::ignore = folder.write("bond0/speed", "50000\n");
    std::ignore = folder.write("bond0/uevent", "DEVTYPE=bond\nINTERFACE=bond0\n");
    std::ignore = folder.write("eth0/speed", "1000\n");
    std::ignore = folder.write("eth1/speed", "-1\n");
    const auto rate = [&](std::string_view text) { return line_rate_of(text, folder.path()); };
    CHECK(rate("tcp over eth0 (10.0.0.1)") == 1'000);
    CHECK(rate("shared memory, eth0: tcp") == 1'000);
    CHECK(rate("tcp over bond0") == 50'000);
    for (const char* const text : {"tcp over veth1", "tcp over eth1", "tcp over lo", "tcp", "",
                                   "tcp over ../eth0", "tcp over 10.0.0.1", "."}) {
        CAPTURE(text);
        CHECK(std::isnan(rate(text)));
    }
}

TEST_CASE("nvidia-smi is understood", "[lab][rank]") {
    HostRecord facts;
    parse_gpus("Tesla T4, 15360, 570.86.15\nTesla T4, 15360, 570.86.15\n", facts);
    REQUIRE(facts.gpus.size() == 2);
    CHECK(facts.gpus[1].model == "Tesla T4");
    CHECK(facts.gpus[1].memory_bytes == 15'360ull << 20);
    CHECK(facts.driver == "570.86.15");
    HostRecord none;
    parse_gpus("No devices were found\n", none);
    CHECK(none.gpus.empty());

    CHECK(parse_gpu_links("\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
                          "GPU0\t X \tNV18\tSYS\t0-15\t0\nGPU1\tNV18\t X \tPHB\t0-15\t0\n"
                          "GPU2\tSYS\tPHB\t X \t0-15\t0\n\nLegend:\n\n  X    = Self\n") ==
          "NVLink (NV18), a PCIe host bridge (PHB), the link between NUMA nodes (SYS)");
    CHECK(parse_gpu_links("\tGPU0\tCPU Affinity\nGPU0\t X \t0-15\n") == "");
    CHECK(parse_gpu_links("") == "");
}

TEST_CASE("a communicator's facts are lines of a name and a value", "[lab][rank]") {
    const auto facts = parse_facts("version: Gloo 0.5\nGPUDirect P2P: no: host memory\n\nodd\n");
    REQUIRE(facts.size() == 2);
    CHECK(facts[0] == std::pair<std::string, std::string>("version", "Gloo 0.5"));
    CHECK(facts[1].second == "no: host memory");
}

TEST_CASE("a program that hangs, fails or is missing has nothing to say", "[lab][rank]") {
    CHECK(output_of({"echo", "two words"}, 10s) == "two words\n");
    CHECK_FALSE(output_of({"sh", "-c", "echo begun; exit 3"}, 10s).has_value());
    CHECK_FALSE(output_of({"dtrun-no-such-program"}, 10s).has_value());
    const auto begin = std::chrono::steady_clock::now();
    CHECK_FALSE(output_of({"sh", "-c", "echo begun; exec sleep 60"}, 100ms).has_value());
    CHECK(std::chrono::steady_clock::now() - begin < 30s);
}
