#include "collectives/nccl/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <algorithm>
#include <cstdlib>

namespace dtrun::collectives::nccl {

std::vector<HostInterface> host_interfaces() {
    std::vector<HostInterface> found;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return found;
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr) continue;
        const int family = at->ifa_addr->sa_family;
        const void* address = nullptr;
        if (family == AF_INET)
            address = &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr;
        else if (family == AF_INET6)
            address = &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
        else
            continue;
        char text[INET6_ADDRSTRLEN] = "";
        if (::inet_ntop(family, address, text, sizeof text) == nullptr) continue;
        found.push_back({at->ifa_name, text, family == AF_INET6});
    }
    ::freeifaddrs(list);
    return found;
}

Result<SocketSettings> choose_sockets(std::span<const std::string> wanted,
                                      const std::string& address,
                                      std::span<const HostInterface> host) {
    SocketSettings settings;
    std::vector<std::string> names;
    bool ipv4 = false;
    const auto take = [&](const std::string& what) {
        for (const HostInterface& one : host) {
            if (one.name != what && one.address != what) continue;
            ipv4 |= !one.ipv6;
            if (std::find(names.begin(), names.end(), one.name) == names.end())
                names.push_back(one.name);
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
    constexpr int kKeep = 0;
    ::setenv("NCCL_SOCKET_IFNAME", settings.interfaces.c_str(), kKeep);
    if (settings.ipv6) ::setenv("NCCL_SOCKET_FAMILY", "AF_INET6", kKeep);
}

}  // namespace dtrun::collectives::nccl
