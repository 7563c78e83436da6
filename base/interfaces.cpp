#include "base/interfaces.h"

#include "base/fd.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <climits>
#include <memory>

namespace dtrun {
namespace {

/// Any address of a socket.
union SocketAddress {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
};

/// \return its size; 0 if the text is no numeric address
socklen_t parse(const std::string& text, SocketAddress& address) {
    address = {};
    if (::inet_pton(AF_INET, text.c_str(), &address.v4.sin_addr) == 1) {
        address.v4.sin_family = AF_INET;
        return sizeof address.v4;
    }
    const std::size_t percent = text.find('%');
    if (::inet_pton(AF_INET6, text.substr(0, percent).c_str(), &address.v6.sin6_addr) != 1)
        return 0;
    address.v6.sin6_family = AF_INET6;
    if (percent != std::string::npos)
        address.v6.sin6_scope_id = ::if_nametoindex(text.c_str() + percent + 1);
    return sizeof address.v6;
}

bool is_link_local(const sockaddr* address) {
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::vector<InterfaceAddress> all_interfaces() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return {};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
    std::vector<InterfaceAddress> found;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        InterfaceAddress& one = found.emplace_back();
        one.interface = entry->ifa_name;
        one.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
        one.up = (entry->ifa_flags & IFF_UP) != 0;
        if (entry->ifa_addr == nullptr) continue;
        one.address = numeric(entry->ifa_addr);
        one.link_local = is_link_local(entry->ifa_addr);
    }
    return found;
}

std::vector<InterfaceAddress> interface_addresses() {
    std::vector<InterfaceAddress> found = all_interfaces();
    std::erase_if(found, [](const InterfaceAddress& one) {
        return !one.up || one.address.empty() || one.link_local;
    });
    std::ranges::stable_partition(found,
                                  [](const InterfaceAddress& one) { return !one.is_ipv6(); });
    return found;
}

std::string address_towards(const std::string& address) {
    SocketAddress target{}, own{};
    const socklen_t size = parse(address, target);
    if (size == 0) return {};
    (target.any.sa_family == AF_INET ? target.v4.sin_port : target.v6.sin6_port) = htons(9);
    const Fd socket(::socket(target.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    socklen_t own_size = sizeof own;
    // Nothing is sent: the kernel only looks up the route.
    if (!socket || ::connect(socket.get(), &target.any, size) != 0 ||
        ::getsockname(socket.get(), &own.any, &own_size) != 0)
        return {};
    return numeric(&own.any);
}

bool is_numeric_address(const std::string& text) {
    SocketAddress ignored;
    return text.find('%') == std::string::npos && parse(text, ignored) != 0;
}

std::string numeric(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) {
        const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
        ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    } else if (address->sa_family == AF_INET6) {
        const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
        // IPv4 over an IPv6 socket is shown as IPv4.
        if (IN6_IS_ADDR_V4MAPPED(&v6))
            ::inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
        else
            ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
    return text;
}

std::string origin_of(const sockaddr* address) {
    SocketAddress network{};
    if (address->sa_family == AF_INET6)
        network.v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    if (address->sa_family != AF_INET6 || IN6_IS_ADDR_V4MAPPED(&network.v6.sin6_addr))
        return numeric(address);
    std::fill_n(&network.v6.sin6_addr.s6_addr[8], 8, std::uint8_t{0});
    return numeric(&network.any) + "/64";
}

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = "";
    ::gethostname(name, sizeof name - 1);
    return name;
}

}  // namespace dtrun
