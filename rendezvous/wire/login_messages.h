#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Messages of log-ins by agents: the head has a relay log in to the hosts behind it, over the connection of the two.

namespace dtrun {

/// How to log in to a host, by the program `ssh`. Keys to get in are those of the host that does it.
struct LoginOrder {
    std::string name;  ///< as the user calls it, by which files of ssh have something for it
    std::string host;  ///< to connect to: a name, or a numeric address
    std::uint32_t port = 22;
    std::string user;
    std::string known_as;  ///< a name for its keys
    std::vector<std::string>
        keys;  ///< one of which it has to show: each as known_hosts writes it, without a name
    std::vector<std::string> options;  ///< of ssh, "Keyword=value"
    std::string command;               ///< for its login shell; empty: as in the order before
    std::uint32_t limit_s = 10;        ///< for it to answer

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("name", m.name), f("host", m.host), f("port", m.port), f("user", m.user);
        f("known_as", m.known_as), f("keys", m.keys), f("options", m.options);
        f("command", m.command), f("limit_s", m.limit_s);
    }
};

enum class LoginEvent : std::uint8_t {
    open,        ///< head -> relay: log in; `bytes` are a sealed frame `login_order`
    input,       ///< head -> relay: `bytes`, sealed, for the standard input of ssh
    input_end,   ///< head -> relay: its end; ssh has a moment to end by itself
    output,      ///< relay -> head: `bytes` of its standard output
    errors,      ///< relay -> head: of its standard error
    output_end,  ///< relay -> head: no more output comes
    exited,      ///< relay -> head, last: how it has ended, as "exit status 255"
    taken,       ///< both ways: so many `bytes_taken` were passed on, and as many may be sent again
};

/// What goes over the standard streams of a log-in by a relay.
struct LoginStream {
    std::uint32_t login = 0;  ///< its number, which the head never uses again
    LoginEvent event = LoginEvent::taken;
    std::string bytes;
    std::uint32_t bytes_taken = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("login", m.login), f("event", m.event), f("bytes", m.bytes), f("taken", m.bytes_taken);
    }
};

/// Bytes under way without `taken`: of input, sealed; and of output and errors together.
inline constexpr std::uint32_t kLoginInputBytes = 128u << 10;
inline constexpr std::uint32_t kLoginOutputBytes = 16u << 10;

}  // namespace dtrun
