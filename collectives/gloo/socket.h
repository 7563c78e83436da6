#pragma once

#include "base/result.h"

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::collectives::over_gloo {

/// Our own descriptor of a connection that Gloo has made and keeps to itself. With it a call that
/// is blocked in Gloo, with Gloo's locks held, can be ended from any thread, and one can wait for
/// two connections at a time.
class Socket {
public:
    /// The ends of a connection.
    struct Ends {
        sockaddr_storage local;
        /// Where it is not known, `local` must be unique, as an accepting end's is.
        std::optional<sockaddr_storage> peer;
    };
    /// The connected sockets of this process with these ends; an empty one where there is none.
    static Result<std::vector<Socket>> find(std::span<const Ends> wanted);

    Socket() = default;
    Socket(Socket&& other) noexcept;
    Socket& operator=(Socket&& other) noexcept;
    ~Socket();

    int fd() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

    /// Shuts both directions down: blocked calls at both ends return. The other end gets EPOLLPRI,
    /// which it does not get from a mere close.
    void shut() const noexcept;
    /// Bytes that have come and have not been read.
    int unread() const;
    /// Enlarges the send buffer as far as the system allows, within reason.
    void make_send_room() const;
    std::size_t send_room() const;
    /// Waits until the connection is over, at either end.
    void wait_until_shut() const;

private:
    explicit Socket(int fd) : fd_(fd) {}

    int fd_ = -1;
};

/// Writing to a lost connection raises SIGPIPE, which would end the program. While one of these
/// lives, the calling thread does not get it.
class NoPipeSignal {
public:
    NoPipeSignal();
    ~NoPipeSignal();
    NoPipeSignal(const NoPipeSignal&) = delete;
    NoPipeSignal& operator=(const NoPipeSignal&) = delete;

    /// Tells that a write has failed, so that a pending SIGPIPE is removed.
    void failed() { take_ = true; }

private:
    bool blocked_ = false;
    bool take_ = false;
};

}  // namespace dtrun::collectives::over_gloo
