#include "base/loop/peer_user.h"

#include "base/fd.h"
#include "base/tcp_table.h"

#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace dtrun {
namespace {

using asio::ip::address;

/// What one source knows; nothing: it cannot be asked here.
using Found = std::optional<PeerUser>;

/// IPv4, also where it is written as IPv6.
address plain(const address& given) {
    if (given.is_v6() && given.to_v6().is_v4_mapped())
        return asio::ip::make_address_v4(asio::ip::v4_mapped, given.to_v6());
    return given;
}

PeerUser judge(uid_t user, bool established, std::uint64_t inode) {
    // What has no inode has no owner any more, and counts as root's.
    if (!established || inode == 0) return PeerUser::gone;
    return user == ::geteuid() || user == 0 ? PeerUser::ours : PeerUser::other;
}

template <std::size_t N>
void put(__be32 (&field)[N], const address& value) {
    if (value.is_v4()) {
        const auto bytes = value.to_v4().to_bytes();
        std::memcpy(field, bytes.data(), bytes.size());
    } else {
        const auto bytes = value.to_v6().to_bytes();
        std::memcpy(field, bytes.data(), bytes.size());
    }
}

struct DiagRequest {
    nlmsghdr header;
    inet_diag_req_v2 request;
};

/// For the one socket with these ends (sock_diag(7)).
DiagRequest diag_request(const tcp::endpoint& here, const tcp::endpoint& there) {
    DiagRequest message{};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    message.header.nlmsg_flags = NLM_F_REQUEST;
    message.request.sdiag_family = plain(here.address()).is_v4() ? AF_INET : AF_INET6;
    message.request.sdiag_protocol = IPPROTO_TCP;
    message.request.idiag_states = ~0u;
    inet_diag_sockid& ends = message.request.id;
    ends.idiag_sport = htons(here.port());
    ends.idiag_dport = htons(there.port());
    put(ends.idiag_src, plain(here.address()));
    put(ends.idiag_dst, plain(there.address()));
    ends.idiag_cookie[0] = ends.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return message;
}

Found ask_kernel(const tcp::endpoint& here, const tcp::endpoint& there) {
    Fd link(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    const DiagRequest message = diag_request(here, there);
    if (!link || ::send(link.get(), &message, sizeof message, 0) < 0) return std::nullopt;
    alignas(nlmsghdr) std::array<char, 8192> answer{};
    ssize_t size = 0;
    do {
        size = ::recv(link.get(), answer.data(), answer.size(), 0);
    } while (size < 0 && errno == EINTR);
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
    const auto holds = [size](std::size_t payload) {
        return size >= static_cast<ssize_t>(NLMSG_LENGTH(payload));
    };
    if (holds(sizeof(nlmsgerr)) && header->nlmsg_type == NLMSG_ERROR) {
        const int error = static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error;
        return error == -ENOENT ? Found(PeerUser::gone) : std::nullopt;
    }
    if (!holds(sizeof(inet_diag_msg)) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return std::nullopt;
    const auto* const found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    return judge(found->idiag_uid, found->idiag_state == TCP_ESTABLISHED, found->idiag_inode);
}

/// As /proc/net/tcp6 has it, or /proc/net/tcp for what is plain IPv4: words of 32 bits, each in the
/// machine's own order.
template <class AddressBytes>
std::string proc_endpoint(const AddressBytes& bytes, std::uint16_t port) {
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, bytes.data() + i, sizeof word);
        text += fmt::format("{:08X}", word);
    }
    return text + fmt::format(":{:04X}", port);
}

std::string proc_v6(const tcp::endpoint& end) {
    const address bare = plain(end.address());
    const auto v6 =
        bare.is_v4() ? asio::ip::make_address_v6(asio::ip::v4_mapped, bare.to_v4()) : bare.to_v6();
    return proc_endpoint(v6.to_bytes(), end.port());
}

Found search_proc(const char* path, const std::string& here, const std::string& there) {
    const auto text = read_file(path);
    if (!text) return std::nullopt;
    if (text->empty()) return std::nullopt;  // not even titles
    for (const TcpRow& row : tcp_rows(*text))
        if (row.local == here && row.remote == there)
            return judge(row.user, row.state == "01", row.inode);
    return PeerUser::gone;
}

/// For kernels without sock_diag, and where it is forbidden.
Found look_into_proc(const tcp::endpoint& here, const tcp::endpoint& there) {
    const Found v6 = search_proc("/proc/net/tcp6", proc_v6(here), proc_v6(there));
    if (v6 && *v6 != PeerUser::gone) return v6;
    if (!plain(here.address()).is_v4()) return v6;
    const Found v4 = search_proc(
        "/proc/net/tcp", proc_endpoint(plain(here.address()).to_v4().to_bytes(), here.port()),
        proc_endpoint(plain(there.address()).to_v4().to_bytes(), there.port()));
    return v4 ? v4 : v6;
}

}  // namespace

PeerUser peer_user(const tcp::socket& socket) {
    boost::system::error_code error;
    const tcp::endpoint far = socket.local_endpoint(error);
    if (error) return PeerUser::gone;
    const tcp::endpoint near = socket.remote_endpoint(error);
    if (error) return PeerUser::gone;
    return user_of(near, far);
}

PeerUser user_of(const tcp::endpoint& near, const tcp::endpoint& far) {
    if (const Found told = ask_kernel(near, far)) return *told;
    return look_into_proc(near, far).value_or(PeerUser::unknown);
}

std::string_view describe(PeerUser user) {
    if (user == PeerUser::unknown)
        return "a process of which nobody can tell whose it is (neither sock_diag nor "
               "/proc/net/tcp)";
    return "another user of this host";
}

}  // namespace dtrun
