#include "launcher/transport/host_target.h"

#include "base/interfaces.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>

namespace dtrun::transport {

bool is_openssh(const SshOptions& options) {
    if (options.command.empty()) return true;
    const std::string& program = options.command.front();
    return program == "ssh" || program.ends_with("/ssh");
}

bool is_this_machine(const Host& host) {
    if (!host.user.empty() || host.port != 0 || !host.address.empty()) return false;
    if (host.name == "localhost" || host.name == host_name()) return true;
    boost::system::error_code error;
    const auto address = asio::ip::make_address(host.name, error);
    if (error) return false;
    if (address.is_loopback()) return true;
    const auto own = interface_addresses();
    return std::ranges::any_of(
        own, [&](const InterfaceAddress& a) { return a.address == address.to_string(); });
}

Result<std::vector<asio::ip::address>> resolve(const std::string& name) {
    boost::system::error_code error;
    const auto literal = asio::ip::make_address(name, error);
    if (!error) return std::vector{literal};
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int failed = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
    if (failed == EAI_NONAME || failed == EAI_NODATA)
        return fail(Errc::not_found, "unknown host name");
    if (failed != 0) return fail(Errc::unreachable, "name look-up: {}", gai_strerror(failed));
    std::vector<asio::ip::address> addresses;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        if (entry->ai_family == AF_INET) {
            const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ai_addr);
            addresses.emplace_back(asio::ip::address_v4(ntohl(v4->sin_addr.s_addr)));
        } else if (entry->ai_family == AF_INET6) {
            const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ai_addr);
            asio::ip::address_v6::bytes_type bytes;
            std::copy_n(v6->sin6_addr.s6_addr, bytes.size(), bytes.begin());
            addresses.emplace_back(asio::ip::address_v6(bytes, v6->sin6_scope_id));
        }
    }
    ::freeaddrinfo(list);
    if (addresses.empty()) return fail(Errc::not_found, "unknown host name");
    return addresses;
}

}  // namespace dtrun::transport
