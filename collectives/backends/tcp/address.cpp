#include "collectives/backends/tcp/address.h"

#include "base/interfaces.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

namespace dtrun::collectives::over_tcp {
namespace {

LocalAddress with_interface(const std::string& ip, const std::vector<InterfaceAddress>& all) {
    for (const InterfaceAddress& one : all)
        if (one.address == ip || (one.loopback && !one.is_ipv6() && ip.starts_with("127.")))
            return {ip, one.interface};
    return {ip, ""};
}

std::optional<LocalAddress> find(const std::string& wanted,
                                 const std::vector<InterfaceAddress>& all) {
    if (is_numeric_address(wanted)) {
        LocalAddress found = with_interface(wanted, all);
        if (!found.interface.empty()) return found;
    }
    for (const InterfaceAddress& one : all)
        if (one.interface == wanted) return LocalAddress{one.address, one.interface};
    return std::nullopt;
}

std::string listed(const std::vector<InterfaceAddress>& all) {
    std::string text;
    for (const InterfaceAddress& one : all)
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", one.interface, one.address);
    return text.empty() ? "none" : text;
}

}  // namespace

Result<LocalAddress> choose_address(const GroupSpec& spec) {
    // IPv4 is first: all ranks must use the same family, and hosts without IPv4 are rare.
    const std::vector<InterfaceAddress> all = interface_addresses();
    if (!spec.interfaces.empty()) {
        std::string wanted;
        for (const std::string& name : spec.interfaces) {
            if (auto found = find(name, all)) return *found;
            wanted += (wanted.empty() ? "" : ", ") + name;
        }
        return fail(Errc::invalid_input, "no network interface {} with an address; there are: {}",
                    wanted, listed(all));
    }
    if (!spec.address.empty()) {
        if (auto found = find(spec.address, all)) return *found;
        return fail(Errc::invalid_input,
                    "{} is not an address of this host (name an interface); there are: {}",
                    spec.address, listed(all));
    }
    for (const bool loopback : {false, true})
        for (const InterfaceAddress& one : all)
            if (one.loopback == loopback) return LocalAddress{one.address, one.interface};
    return fail(Errc::invalid_input, "this host has no network interface that is up");
}

std::string text_of(const sockaddr_storage& address) {
    const in_port_t port = address.ss_family == AF_INET6
                               ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                               : reinterpret_cast<const sockaddr_in&>(address).sin_port;
    return fmt::format("{} {}", numeric(reinterpret_cast<const sockaddr*>(&address)), ntohs(port));
}

Result<sockaddr_storage> parse_address(std::string_view text) {
    const auto space = text.find(' ');
    const std::string ip(text.substr(0, space));
    std::uint16_t port = 0;
    const char* end = text.data() + text.size();
    if (space == text.npos ||
        std::from_chars(text.data() + space + 1, end, port) != std::from_chars_result{end, {}})
        return fail(Errc::invalid_input, "\"{}\" is not an address and a port", text);
    sockaddr_storage address{};
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    if (inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
    } else {
        return fail(Errc::invalid_input, "\"{}\" is not an IP address", ip);
    }
    return address;
}

}  // namespace dtrun::collectives::over_tcp
