#include "base/loop/net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>
#include <algorithm>
#include <boost/asio/ip/udp.hpp>
#include <climits>

namespace dtrun {

std::string numeric(const asio::ip::address& address) {
    if (address.is_v6() && address.to_v6().is_v4_mapped())
        return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
    return address.to_string();
}

std::string remote_address(const tcp::socket& socket) {
    boost::system::error_code closed;
    return numeric(socket.remote_endpoint(closed).address());
}

std::string local_address(const tcp::socket& socket) {
    boost::system::error_code closed;
    return numeric(socket.local_endpoint(closed).address());
}

std::vector<InterfaceAddress> interface_addresses() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return {};
    std::vector<InterfaceAddress> found;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
        const int family = entry->ifa_addr->sa_family;
        char text[INET6_ADDRSTRLEN] = "";
        if (family == AF_INET) {
            const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
            ::inet_ntop(family, &v4->sin_addr, text, sizeof text);
        } else if (family == AF_INET6) {
            const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
            if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
            ::inet_ntop(family, &v6->sin6_addr, text, sizeof text);
        } else {
            continue;
        }
        found.push_back({entry->ifa_name, text, (entry->ifa_flags & IFF_LOOPBACK) != 0});
    }
    ::freeifaddrs(list);
    std::ranges::stable_partition(
        found, [](const InterfaceAddress& a) { return a.address.find(':') == std::string::npos; });
    return found;
}

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = "";
    ::gethostname(name, sizeof name - 1);
    return name;
}

std::string address_towards(const std::string& address) {
    boost::system::error_code error;
    const auto target = asio::ip::make_address(address, error);
    if (error) return {};
    asio::io_context io;
    asio::ip::udp::socket socket(io);
    constexpr std::uint16_t kAnyPort = 9;
    const asio::ip::udp::endpoint endpoint(target, kAnyPort);
    socket.open(endpoint.protocol(), error);
    if (!error) socket.connect(endpoint, error);
    if (error) return {};
    const auto local = socket.local_endpoint(error);
    return error ? std::string() : numeric(local.address());
}

}  // namespace dtrun
