#include "collectives/communicator/host_address.h"

#include "base/fd.h"
#include "base/interfaces.h"

#include <netdb.h>
#include <sys/socket.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace dtrun::collectives {
namespace {

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
}

/// IPv4 before IPv6; "" if it has none.
std::string address_of(const std::string& interface) {
    const std::vector<InterfaceAddress> all = interface_addresses();
    const auto found = std::ranges::find(all, interface, &InterfaceAddress::interface);
    return found == all.end() ? "" : found->address;
}

/// The first address of a host that is named or given as a number; "" if it has none.
std::string resolved(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return {};
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
    return numeric(list->ai_addr);
}

}  // namespace

bool has_infiniband(const std::string& folder) {
    namespace fs = std::filesystem;
    std::error_code error;
    for (const auto& device : fs::directory_iterator(folder, error))
        for (const auto& port : fs::directory_iterator(device.path() / "ports", error)) {
            const auto state = read_file((port.path() / "state").string());
            const auto layer = read_file((port.path() / "link_layer").string());
            if (state && layer && state->find("ACTIVE") != state->npos &&
                layer->starts_with("InfiniBand"))
                return true;
        }
    return false;
}

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

std::string own_address(const std::vector<std::string>& interfaces) {
    for (const std::string& interface : interfaces) {
        if (is_numeric_address(interface)) return interface;
        if (std::string address = address_of(interface); !address.empty()) return address;
    }
    const std::string meeting = variable("MASTER_ADDR");
    std::string own = meeting.empty() ? "" : address_towards(resolved(meeting));
    // A host's own name often means one that no other host can reach.
    if (own.starts_with("127.") || own == "::1") own.clear();
    return own;
}

}  // namespace dtrun::collectives
