#include "launcher/transport/host_target.h"

#include "base/fd.h"
#include "base/interfaces.h"
#include "base/loop/net.h"
#include "base/threads.h"
#include "launcher/transport/ssh_patterns.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

namespace dtrun::transport {
namespace {

bool is_own_address(const asio::ip::address& address) {
    if (address.is_loopback()) return true;
    const auto own = interface_addresses();
    return std::ranges::any_of(
        own, [&](const InterfaceAddress& a) { return a.address == numeric(address); });
}

/// Whether this process can open nothing more, so that a look-up finds no name server.
bool is_out_of_descriptors() {
    return !Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)) && (errno == EMFILE || errno == ENFILE);
}

/// leads_here(), if that is known within kLookUpLimit.
bool soon_leads_here(const std::string& name) {
    const auto answer = std::make_shared<std::atomic<bool>>(false);
    try {
        // One that waits for a name server that does not answer is left behind.
        Thread looking([answer, name] { *answer = leads_here(name); });
        return looking.join_until(after(kLookUpLimit)) && *answer;
    } catch (const std::system_error&) {
        return false;  // no thread can be had
    }
}

}  // namespace

bool is_openssh(const SshOptions& options) {
    if (options.command.empty()) return true;
    const std::string& program = options.command.front();
    return program == "ssh" || program.ends_with("/ssh");
}

bool is_this_machine(const Host& host, LookUp look_up) {
    if (!host.user.empty() || host.port != 0 || !host.address.empty()) return false;
    const std::string name = lower(host.name);
    const std::string own = lower(host_name());
    if (name == "localhost" || name == own) return true;
    boost::system::error_code error;
    const auto address = asio::ip::make_address(name, error);
    if (!error) return is_own_address(address);
    return look_up == LookUp::own_names && may_be_own_name(name, own) && soon_leads_here(name);
}

bool may_be_own_name(std::string_view name, std::string_view own) {
    const std::string whole = lower(name);
    const std::string first = lower(own.substr(0, own.find('.')));
    if (first.empty() || !whole.starts_with(first)) return false;
    return whole.size() == first.size() || whole[first.size()] == '.' || whole[first.size()] == '-';
}

std::string file_hint(const std::string& name) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(name, none)) return {};
    return fmt::format("; a file here has this name: write --hostfile {}", name);
}

bool leads_here(const std::string& name) {
    const auto addresses = resolve(name);
    return addresses && std::ranges::any_of(*addresses, is_own_address);
}

Result<std::vector<asio::ip::address>> resolve(const std::string& name) {
    boost::system::error_code error;
    const auto literal = asio::ip::make_address(name, error);
    if (!error) return std::vector{literal};
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int failed = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
    if (failed != 0 && is_out_of_descriptors())
        return fail(Errc::internal, "name look-up: Too many open files; raise ulimit -n");
    if (failed == EAI_NONAME || failed == EAI_NODATA) {
        const std::string hint = file_hint(name);
        return fail(Errc::not_found, "unknown host name{}",
                    hint.empty() ? "; `ssh NAME` has to know it" : hint);
    }
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
