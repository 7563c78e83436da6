#include "collectives/backends/nccl/network.h"

#include "base/environment.h"

#include <algorithm>

namespace dtrun::collectives::nccl {

Result<SocketSettings> choose_sockets(std::span<const std::string> wanted,
                                      const std::string& address,
                                      std::span<const InterfaceAddress> host) {
    SocketSettings settings;
    std::vector<std::string> names;
    bool ipv4 = false;
    const auto take = [&](const std::string& what) {
        for (const InterfaceAddress& one : host) {
            if (one.address.empty() || (one.interface != what && one.address != what)) continue;
            ipv4 |= !one.is_ipv6();
            if (std::find(names.begin(), names.end(), one.interface) == names.end())
                names.push_back(one.interface);
            if (one.address == what) break;
        }
    };
    // The loopback would do for now, but hosts may join, and NCCL looks once.
    const bool loopback = address.starts_with("127.") || address == "::1";
    if (wanted.empty() && !address.empty() && !loopback) take(address);
    for (const std::string& what : wanted) take(what);
    if (names.empty()) {
        if (wanted.empty()) return settings;
        std::string all;
        for (const std::string& what : wanted) all += (all.empty() ? "" : ", ") + what;
        return fail(Errc::invalid_input, "no network interface or address {} on this host", all);
    }
    for (const std::string& name : names)
        settings.interfaces += (settings.interfaces.empty() ? "=" : ",") + name;
    settings.ipv6 = !ipv4;
    return settings;
}

void export_sockets(const SocketSettings& settings) {
    if (settings.interfaces.empty()) return;
    set_variable("NCCL_SOCKET_IFNAME", settings.interfaces, IfSet::keep);
    if (settings.ipv6) set_variable("NCCL_SOCKET_FAMILY", "AF_INET6", IfSet::keep);
}

}  // namespace dtrun::collectives::nccl
