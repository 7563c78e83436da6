#include "worker/stored/hand_on.h"

#include "base/fd.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

namespace dtrun::agent {
namespace {

constexpr unsigned kTakersMax = 16;     // at once: the head sends a few
constexpr int kWordLimit_s = 5;         // for a taker to say the word
constexpr int kStandStillLimit_s = 20;  // for one that takes nothing
constexpr int kIdleLimit_ms = 60'000;
constexpr std::size_t kPieceBytes = 1u << 20;

struct Listener {
    Fd socket;
    std::uint16_t port = 0;
};

/// A port of every address that this host has.
std::optional<Listener> listen_anywhere() {
    for (const int family : {AF_INET6, AF_INET}) {
        Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in6 address{};  // has room for the other one, whose port is at the same place
        address.sin6_family = static_cast<sa_family_t>(family);
        socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        const int no = 0;
        if (family == AF_INET6)
            ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        if (socket && ::bind(socket.get(), any, size) == 0 &&
            ::listen(socket.get(), kTakersMax) == 0 && ::getsockname(socket.get(), any, &size) == 0)
            return Listener{std::move(socket), ntohs(address.sin6_port)};
    }
    return std::nullopt;
}

void limit_waiting(int socket, int option, int seconds) {
    const timeval limit{seconds, 0};
    ::setsockopt(socket, SOL_SOCKET, option, &limit, sizeof limit);
}

/// In a process of its own: sends the file to who says the word.
void give(const Fd& taker, const std::string& word, const Fd& file) {
    limit_waiting(taker.get(), SO_RCVTIMEO, kWordLimit_s);
    limit_waiting(taker.get(), SO_SNDTIMEO, kStandStillLimit_s);
    const std::string line = word + "\n";
    std::string said(line.size(), '\0');
    const ssize_t n = ::recv(taker.get(), said.data(), said.size(), MSG_WAITALL);
    if (n != static_cast<ssize_t>(line.size()) || said != line) return;
    for (off_t at = 0; ::sendfile(taker.get(), file.get(), &at, kPieceBytes) > 0;) continue;
}

/// Ends with the process `parent`, and is no part of the terminal or the lifeline.
void be_apart(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    ::prctl(PR_SET_NAME, "dtrun-hand-on");
    ::signal(SIGPIPE, SIG_IGN);
}

[[noreturn]] void serve(const Fd& listener, const std::string& word, const Fd& file) {
    unsigned takers = 0;
    pollfd waits{listener.get(), POLLIN, 0};
    // A connection may be gone before it is taken.
    ::fcntl(listener.get(), F_SETFL, O_NONBLOCK);
    while (waits.revents = 0, ::poll(&waits, 1, kIdleLimit_ms) != 0 || takers > 0) {
        while (takers > 0 && ::waitpid(-1, nullptr, takers == kTakersMax ? 0 : WNOHANG) > 0)
            --takers;
        if ((waits.revents & POLLIN) == 0) continue;
        const Fd taker(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!taker) continue;
        const pid_t self = ::getpid();
        const pid_t child = ::fork();
        takers += child > 0;
        if (child != 0) continue;
        be_apart(self);
        give(taker, word, file);
        ::_exit(0);
    }
    ::_exit(0);
}

}  // namespace

void start_handing_on(const std::string& word, Fd file) {
    if (::fcntl(file.get(), F_SETFD, FD_CLOEXEC) != 0) {  // the shell has not passed it on
        file.release();
        return;
    }
    const auto listener = listen_anywhere();
    if (!listener) return;
    const pid_t self = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) return;
    if (child > 0) {
        std::printf("dtrun-agent-hands-on %d\n", static_cast<int>(listener->port));
        std::fflush(stdout);
        return;
    }
    be_apart(self);
    const Fd null(::open("/dev/null", O_RDWR));
    for (int fd = 0; fd <= 2; ++fd) ::dup2(null.get(), fd);
    serve(listener->socket, word, file);
}

}  // namespace dtrun::agent
