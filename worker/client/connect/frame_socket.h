#pragma once

#include "base/fd.h"
#include "rendezvous/wire/frame.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/private_fd.h"
#include "worker/client/connect/wait_context.h"

#include <sys/socket.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::embedded {

/// One address of a host, with a port.
struct TcpAddress {
    sockaddr_storage socket_address{};
    socklen_t size = 0;

    TcpAddress at(std::uint16_t port) const;
};

/// Finds the addresses of a host. \param port  empty: 0. Failures: closed
using Resolver = std::function<Outcome<std::vector<TcpAddress>>(const std::string& host,
                                                                const std::string& port)>;

/// The system's: of a name it takes as long as it takes.
Outcome<std::vector<TcpAddress>> ask_resolver(const std::string& host, const std::string& port);

/// Asks it in a thread of our own if it is a name, and leaves that behind when the context ends.
/// Failures: closed, timed_out, cancelled
Outcome<std::vector<TcpAddress>> resolve(const std::string& host, const std::string& port,
                                         const WaitContext& context,
                                         const Resolver& resolver = ask_resolver);

/// Turns on TCP's keepalive, so that the end of a host that could not say goodbye is noticed: after
/// half a minute, or, while it owes us an acknowledgement, when the kernel gives up
/// (net.ipv4.tcp_retries2: 15 minutes).
void keep_watch(int tcp_socket);

/// A connected socket, and frames out of what it brings. Never raises SIGPIPE. A forked child does
/// not have it.
///
/// Thread: one at a time may receive, another one send. Lifetime: owns the socket.
class FrameSocket {
public:
    static constexpr std::size_t kDescriptorsMax = 8;

    FrameSocket() = default;
    explicit FrameSocket(PrivateFd socket) : socket_(std::move(socket)) {}

    /// To an agent: a Unix socket, "@name" for the abstract "\0name". The other side must run as
    /// the same user or as root. Failures: closed, refused, invalid
    static Outcome<FrameSocket> connect_unix(const std::string& path);
    /// Tries one after the other; each has its share of the time that is left, so that one that
    /// does not answer leaves some to the others. Failures: closed, timed_out, cancelled
    static Outcome<FrameSocket> connect_tcp(const std::vector<TcpAddress>& addresses,
                                            const WaitContext& context);
    /// The same with every address of `host`.
    static Outcome<FrameSocket> connect_tcp(const std::string& host, const std::string& port,
                                            const WaitContext& context);

    int fd() const { return socket_.get(); }

    /// All of it, however long that takes. Failures: closed
    Outcome<void> send(std::string_view bytes);
    /// As much of it as goes until then, or until a signal handler runs; `bytes` are then the rest. What
    /// goes at once is sent in any case. Failures: closed
    Outcome<void> send_some(std::string_view& bytes, Moment until);

    bool can_send() const;  ///< a small frame, without waiting

    enum class Got {
        bytes,    ///< next() may have a frame
        nothing,  ///< `until` has passed
        signal,   ///< a signal handler ran
        woken,    ///< what was to end the wait, too, is there
        end       ///< closed or broken
    };
    /// What ends a wait for bytes besides them.
    struct Also {
        bool has_room = false;  ///< it can be sent to
        int bell = -1;          ///< an eventfd, which is read when it has rung; none: -1
    };
    /// Waits for bytes and takes what is there, by one recv().
    Got receive(Moment until, Also also);
    Got receive(Moment until) { return receive(until, {}); }
    /// Descriptors that came with bytes, over a Unix socket, and were not taken yet; at most kDescriptorsMax.
    std::vector<Fd> take_descriptors() { return std::exchange(descriptors_, {}); }
    /// The next whole frame; a view until the next receive(). Errc: invalid_input
    Result<std::optional<FrameView>> next();

    /// Exactly `size` bytes, of a peer that does not speak in frames yet; nothing else may have
    /// been received. Failures: closed, timed_out, cancelled
    Outcome<std::string> read_exactly(std::size_t size, const WaitContext& context);

    /// Ends the connection, and wakes the thread that receives: it finds the end.
    void shut_down();
    /// Says that no more will come, and waits until the other side has read all and closed.
    void finish(Moment deadline);

private:
    void make_room();
    int wait_for_bytes(Moment until, Also also);
    ssize_t receive_bytes(int flags);

    PrivateFd socket_;
    std::string buffer_;       ///< its size is what could be filled
    std::size_t begin_ = 0;    ///< not yet used
    std::size_t end_ = 0;      ///< received
    bool large_came_ = false;  ///< a frame has come lately that needed a larger buffer_
    bool is_unix_ = false;
    std::vector<Fd> descriptors_;
};

}  // namespace dtrun::embedded
