#pragma once

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dtrun {

/// A process of another user, `nobody`, which lives until the end of a test. Only root can make one.
class OtherUser {
public:
    static constexpr uid_t kNobody = 65'534;

    /// \param act  what it does; it then waits for its end
    explicit OtherUser(const std::function<void()>& act) {
        child_ = ::fork();
        if (child_ != 0) return;
        if (::setuid(kNobody) != 0) ::_exit(99);
        act();
        for (;;) ::pause();
    }
    ~OtherUser() {
        if (has_ended()) return;
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }
    OtherUser(const OtherUser&) = delete;
    OtherUser& operator=(const OtherUser&) = delete;

    /// Whether it has left by _exit().
    bool has_ended() {
        int status = 0;
        if (!exit_code_ && ::waitpid(child_, &status, WNOHANG) == child_)
            exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        return exit_code_.has_value();
    }
    std::optional<int> exit_code() const { return exit_code_; }

private:
    pid_t child_ = 0;
    std::optional<int> exit_code_;
};

// For the process of another user:

/// A connection to a port of this machine.
inline int connect_to_port(std::uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) ::_exit(98);
    return socket;
}

/// A socket with an abstract name: what ::connect or ::bind makes of it. \param name  begins with '@'
inline int unix_socket(const std::string& name, int (*use)(int, const sockaddr*, socklen_t)) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(name.begin() + 1, name.end(), address.sun_path + 1);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    if (use(socket, reinterpret_cast<const sockaddr*>(&address), bytes) != 0) ::_exit(97);
    return socket;
}

/// Ends with status 0 if the other side closes the connection and has said nothing, else with 1.
[[noreturn]] inline void expect_to_be_turned_away(int socket) {
    char byte = 0;
    ::_exit(::read(socket, &byte, 1) <= 0 ? 0 : 1);
}

}  // namespace dtrun
