#include "collectives/host_address.h"

#include "base/fd.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <cstdlib>
#include <memory>

namespace dtrun::collectives {
namespace {

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
}

std::string numeric(const sockaddr* address, socklen_t size) {
    char host[NI_MAXHOST];
    const int error = ::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return error == 0 ? host : "";
}

/// IPv4 before IPv6; "" if it has none.
std::string address_of(const std::string& interface) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
    std::string found;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || interface != entry->ifa_name) continue;
        if (entry->ifa_addr->sa_family == AF_INET)
            return numeric(entry->ifa_addr, sizeof(sockaddr_in));
        if (entry->ifa_addr->sa_family == AF_INET6 && found.empty())
            found = numeric(entry->ifa_addr, sizeof(sockaddr_in6));
    }
    return found;
}

bool is_address(const std::string& text) {
    in6_addr parsed;
    return ::inet_pton(AF_INET, text.c_str(), &parsed) == 1 ||
           ::inet_pton(AF_INET6, text.c_str(), &parsed) == 1;
}

}  // namespace

std::vector<std::string> split_names(const std::string& text) {
    std::vector<std::string> names;
    std::string name;
    for (const char c : text + ",") {
        if (c == ',') {
            if (!name.empty()) names.push_back(std::move(name));
            name.clear();
        } else if (c != ' ') {
            name += c;
        }
    }
    return names;
}

std::vector<std::string> interfaces_from_environment() {
    for (const char* name :
         {"DTRUN_NETWORK_INTERFACE", "GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE"}) {
        auto names = split_names(variable(name));
        if (!names.empty()) return names;
    }
    return {};
}

std::string address_towards(const std::string& address) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    if (::getaddrinfo(address.c_str(), "1", &hints, &list) != 0) return {};
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
    const Fd socket(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    // Nothing is sent: the kernel only looks up the way.
    if (!socket || ::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
        return {};
    return numeric(reinterpret_cast<const sockaddr*>(&own), size);
}

std::string own_address(const std::vector<std::string>& interfaces) {
    for (const std::string& interface : interfaces) {
        if (is_address(interface)) return interface;
        if (std::string address = address_of(interface); !address.empty()) return address;
    }
    const std::string meeting = variable("MASTER_ADDR");
    std::string own = meeting.empty() ? "" : address_towards(meeting);
    // A host's own name often means one that no other host can reach.
    if (own.starts_with("127.") || own == "::1") own.clear();
    return own;
}

}  // namespace dtrun::collectives
