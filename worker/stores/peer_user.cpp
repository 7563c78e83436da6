#include "worker/stores/peer_user.h"

#include "base/fd.h"
#include "base/strings.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cstring>

namespace dtrun {
namespace {

using asio::ip::address;

/// IPv4, also where it is written as IPv6.
address plain(const address& given) {
    if (given.is_v6() && given.to_v6().is_v4_mapped())
        return asio::ip::make_address_v4(asio::ip::v4_mapped, given.to_v6());
    return given;
}

void put(__be32 (&field)[4], const address& value) {
    if (value.is_v4()) {
        const auto bytes = value.to_v4().to_bytes();
        std::memcpy(field, bytes.data(), bytes.size());
    } else {
        const auto bytes = value.to_v6().to_bytes();
        std::memcpy(field, bytes.data(), bytes.size());
    }
}

/// Asks the kernel for the one socket with these ends (sock_diag(7)).
std::optional<uid_t> ask_kernel(const tcp::endpoint& here, const tcp::endpoint& there) {
    Fd link(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!link) return std::nullopt;
    struct {
        nlmsghdr header;
        inet_diag_req_v2 request;
    } message{};
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
    if (::send(link.get(), &message, sizeof message, 0) < 0) return std::nullopt;
    alignas(nlmsghdr) std::array<char, 8192> answer{};
    const auto size = ::recv(link.get(), answer.data(), answer.size(), 0);
    if (size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) return std::nullopt;
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
    return static_cast<const inet_diag_msg*>(NLMSG_DATA(header))->idiag_uid;
}

}  // namespace

std::optional<uid_t> local_peer_user(const tcp::socket& socket) {
    boost::system::error_code error;
    const tcp::endpoint there = socket.local_endpoint(error);
    if (error) return std::nullopt;
    const tcp::endpoint here = socket.remote_endpoint(error);
    if (error) return std::nullopt;
    return ask_kernel(here, there);
}

bool is_peer_ours(const tcp::socket& socket) {
    const auto user = local_peer_user(socket);
    return user && (*user == ::geteuid() || *user == 0);
}

}  // namespace dtrun
