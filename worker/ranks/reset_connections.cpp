#include "worker/ranks/reset_connections.h"

#include "base/fd.h"
#include "base/strings.h"
#include "base/tcp_table.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

namespace dtrun::ranks {
namespace {

using Address = decltype(Endpoint::address);
constexpr std::string_view kListening = "0A";

std::optional<Address> parse_address(const std::string& text) {
    Address address{};
    if (::inet_pton(AF_INET6, text.c_str(), address.data()) == 1) return address;
    address = {};
    address[10] = address[11] = 0xff;
    if (::inet_pton(AF_INET, text.c_str(), address.data() + 12) == 1) return address;
    return std::nullopt;
}

/// Reads "0100007F:1F90" of /proc/net/tcp: words of 32 bits in the order of this machine.
std::optional<Endpoint> read_end(std::string_view written) {
    const std::size_t colon = written.find(':');
    const std::string_view digits = written.substr(0, colon);
    if ((digits.size() != 8 && digits.size() != 32) || colon == std::string_view::npos)
        return std::nullopt;
    Endpoint end;
    std::from_chars(written.data() + colon + 1, written.data() + written.size(), end.port, 16);
    Address& address = end.address;
    if (digits.size() == 8) address[10] = address[11] = 0xff;
    const std::size_t first = digits.size() == 8 ? 12 : 0;
    for (std::size_t word = 0; word < digits.size() / 8; ++word) {
        std::uint32_t value = 0;
        const char* const begin = digits.data() + word * 8;
        if (std::from_chars(begin, begin + 8, value, 16).ec != std::errc{}) return std::nullopt;
        std::memcpy(address.data() + first + word * 4, &value, sizeof value);
    }
    return end;
}

/// Adds the inodes of a network's connections that are wanted. \param file  tcp or tcp6
void find_connections(pid_t process, const char* file, const std::set<Address>& addresses,
                      const std::set<Endpoint>& endpoints, std::set<ino_t>& inodes) {
    const auto table = read_file(fmt::format("/proc/{}/net/{}", process, file));
    if (!table) return;
    for (const TcpRow& row : tcp_rows(*table)) {
        const auto here = read_end(row.local), there = read_end(row.remote);
        if (row.state == kListening || row.inode == 0 || !here || !there) continue;
        if (addresses.contains(there->address) || endpoints.contains(*there) ||
            endpoints.contains(*here))
            inodes.insert(row.inode);
    }
}

/// The inode of a descriptor that is a socket; 0 for others.
ino_t socket_inode(const std::string& path) {
    constexpr std::string_view kPrefix = "socket:[";
    std::array<char, 64> target{};
    const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
    const std::string_view text(target.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    if (!text.starts_with(kPrefix)) return 0;
    ino_t inode = 0;
    std::from_chars(text.data() + kPrefix.size(), text.data() + text.size(), inode);
    return inode;
}

/// Shuts down those sockets of a process, each once.
void shut_down(pid_t process, std::set<ino_t>& inodes, ResetResult& connections_reset) {
    const std::string folder = fmt::format("/proc/{}/fd", process);
    const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir(folder.c_str()), ::closedir);
    if (!list) {
        if (errno == EACCES || errno == EPERM) connections_reset.error = errno;
        return;
    }
    const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    while (const dirent* entry = ::readdir(list.get())) {
        const ino_t inode = socket_inode(folder + "/" + entry->d_name);
        if (inode == 0 || !inodes.contains(inode)) continue;
        const Fd socket(static_cast<int>(
            ::syscall(SYS_pidfd_getfd, handle.get(), std::atoi(entry->d_name), 0)));
        if (!socket) {
            if (errno != EBADF && errno != ESRCH) connections_reset.error = errno;
            continue;
        }
        ::shutdown(socket.get(), SHUT_RDWR);  // of one that is being made as well
        ++connections_reset.connections;
        inodes.erase(inode);
    }
}

}  // namespace

ResetResult reset_connections(std::span<const pid_t> processes, const ConnectionSet& what) {
    std::set<Address> wanted;
    for (const std::string& text : what.addresses)
        if (const auto address = parse_address(text)) wanted.insert(*address);
    std::set<ino_t> networks, inodes;
    for (const pid_t process : processes) {
        struct stat network {};
        // Most processes are in one network, whose connections are read once.
        if (::stat(fmt::format("/proc/{}/ns/net", process).c_str(), &network) != 0) continue;
        if (!networks.insert(network.st_ino).second) continue;
        for (const char* const file : {"tcp", "tcp6"})
            find_connections(process, file, wanted, what.endpoints, inodes);
    }
    ResetResult connections_reset;
    for (const pid_t process : processes) {
        if (inodes.empty()) break;
        shut_down(process, inodes, connections_reset);
    }
    return connections_reset;
}

std::string why_no_reset() {
    const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    const Fd copy(
        static_cast<int>(handle ? ::syscall(SYS_pidfd_getfd, handle.get(), handle.get(), 0) : -1));
    if (!copy) return fmt::format("pidfd_getfd: {}", std::strerror(errno));
    const std::string text = read_file("/proc/sys/kernel/yama/ptrace_scope").value_or("");
    const long long scope = to_int(trim(text), 0, 3).value_or(0);
    const bool is_forbidden = scope == 3 || (scope == 2 && ::geteuid() != 0);
    return is_forbidden ? fmt::format("kernel.yama.ptrace_scope is {}", scope) : std::string();
}

}  // namespace dtrun::ranks
