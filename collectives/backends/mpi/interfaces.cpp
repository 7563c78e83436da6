#include "collectives/backends/mpi/interfaces.h"

#include "base/interfaces.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace dtrun::collectives {
namespace {

namespace fs = std::filesystem;

void add(std::vector<std::string>& list, const std::string& one) {
    if (std::ranges::find(list, one) == list.end()) list.push_back(one);
}

std::string joined(std::span<const std::string> words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
    return text;
}

/// InfiniBand devices behind an interface, as UCX calls them: "mlx5_0:1".
std::vector<std::string> fabric_devices(const std::string& interface, const fs::path& system) {
    int port = 0;
    std::ifstream(system / interface / "dev_port") >> port;
    std::vector<std::string> devices;
    std::error_code absent;
    for (const auto& entry :
         fs::directory_iterator(system / interface / "device" / "infiniband", absent))
        devices.push_back(fmt::format("{}:{}", entry.path().filename().string(), port + 1));
    return devices;
}

/// UCX takes InfiniBand devices, for their own protocol, and interfaces, for TCP.
std::string ucx_devices(std::span<const std::string> interfaces, const fs::path& system) {
    std::vector<std::string> devices;
    for (const std::string& interface : interfaces) {
        for (const std::string& device : fabric_devices(interface, system)) add(devices, device);
        add(devices, interface);
    }
    return joined(devices);
}

}  // namespace

Result<std::vector<std::string>> interfaces_here(std::span<const std::string> wanted) {
    const std::vector<InterfaceAddress> all = all_interfaces();
    std::vector<std::string> names;
    for (const std::string& one : wanted)
        for (const InterfaceAddress& here : all)
            if (one == here.interface || one == here.address) add(names, here.interface);
    if (!names.empty()) return names;
    std::vector<std::string> there;
    for (const InterfaceAddress& here : all) add(there, here.interface);
    return fail(Errc::invalid_input,
                "this host has no network interface or address {}; its interfaces are {}",
                joined(wanted), joined(there));
}

std::vector<Setting> interface_settings(
    MpiLibrary library, std::span<const std::string> interfaces,
    const std::function<std::optional<std::string>(const std::string& name)>& environment,
    const fs::path& system) {
    // dtrun's agent sets this one to the value of those two, so it is no user's choice
    // (docs/ENVIRONMENT.md).
    const auto by_agent = [&](const Setting& setting) {
        return setting.name == "OMPI_MCA_btl_tcp_if_include" &&
               (environment(setting.name) == environment("HOROVOD_GLOO_IFACE") ||
                environment(setting.name) == environment("GLOO_SOCKET_IFNAME"));
    };
    std::vector<Setting> all{{"UCX_NET_DEVICES", ucx_devices(interfaces, system)}};
    if (library == MpiLibrary::openmpi) {
        if (!environment("OMPI_MCA_btl_tcp_if_exclude"))
            all.push_back({"OMPI_MCA_btl_tcp_if_include", joined(interfaces)});
    } else {  // MPICH's own TCP, and that of libfabric, take one only
        for (const char* name : {"MPIR_CVAR_CH3_NETWORK_IFACE", "FI_TCP_IFACE", "FI_SOCKETS_IFACE"})
            all.push_back({name, interfaces.front()});
    }
    std::erase_if(all, [&](const Setting& setting) {
        return environment(setting.name).has_value() && !by_agent(setting);
    });
    return all;
}

}  // namespace dtrun::collectives
