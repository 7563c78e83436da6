#include "collectives/backends/mpi/interfaces.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fstream>
#include <map>

using namespace dtrun;
using namespace dtrun::collectives;
using Catch::Contains;
using Words = std::vector<std::string>;

namespace {

using Environment = std::map<std::string, std::string>;

/// The settings as "NAME=VALUE" in one line.
std::string settings(MpiLibrary library, const Words& interfaces, const Environment& environment,
                     const std::filesystem::path& system = "/nonexistent") {
    const auto value = [&](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        if (found == environment.end()) return std::nullopt;
        return found->second;
    };
    std::string text;
    for (const Setting& one : interface_settings(library, interfaces, value, system))
        text += (text.empty() ? "" : " ") + one.name + "=" + one.value;
    return text;
}

}  // namespace

TEST_CASE("interfaces are found by name and by address, and those of other hosts are left out",
          "[collectives][mpi]") {
    CHECK(*interfaces_here(Words{"lo"}) == Words{"lo"});
    CHECK(*interfaces_here(Words{"none0", "127.0.0.1", "lo"}) == Words{"lo"});
    const auto none = interfaces_here(Words{"none0", "203.0.113.7"});
    REQUIRE_FALSE(none);
    CHECK(none.error().code == Errc::invalid_input);
    CHECK_THAT(none.error().message,
               Contains("no network interface or address none0,203.0.113.7; its interfaces are "));
}

TEST_CASE("each MPI library gets its own variables, unless the user has set them",
          "[collectives][mpi]") {
    CHECK(settings(MpiLibrary::openmpi, {"eth0", "ib0"}, {}) ==
          "UCX_NET_DEVICES=eth0,ib0 OMPI_MCA_btl_tcp_if_include=eth0,ib0");
    CHECK(settings(MpiLibrary::mpich, {"eth0", "ib0"}, {}) ==
          "UCX_NET_DEVICES=eth0,ib0 MPIR_CVAR_CH3_NETWORK_IFACE=eth0 FI_TCP_IFACE=eth0 "
          "FI_SOCKETS_IFACE=eth0");
    CHECK(settings(MpiLibrary::openmpi, {"eth0"},
                   {{"OMPI_MCA_btl_tcp_if_include", "eth1"}, {"UCX_NET_DEVICES", "eth1"}}) == "");
    CHECK(settings(MpiLibrary::openmpi, {"eth0"}, {{"OMPI_MCA_btl_tcp_if_exclude", "eth1"}}) ==
          "UCX_NET_DEVICES=eth0");
    // The agent's default is not the user's word.
    CHECK(settings(MpiLibrary::openmpi, {"eth0"},
                   {{"OMPI_MCA_btl_tcp_if_include", "eth1"}, {"HOROVOD_GLOO_IFACE", "eth1"}}) ==
          "UCX_NET_DEVICES=eth0 OMPI_MCA_btl_tcp_if_include=eth0");
}

TEST_CASE("UCX gets the InfiniBand device behind an interface", "[collectives][mpi]") {
    const TempDir directory;
    const std::filesystem::path system = directory.path();
    std::filesystem::create_directories(system / "ib0" / "device" / "infiniband" / "mlx5_0");
    std::ofstream(system / "ib0" / "dev_port") << "1\n";
    CHECK(settings(MpiLibrary::openmpi, {"ib0", "eth0"}, {}, system) ==
          "UCX_NET_DEVICES=mlx5_0:2,ib0,eth0 OMPI_MCA_btl_tcp_if_include=ib0,eth0");
}
