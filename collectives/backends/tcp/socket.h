#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <string>

struct iovec;

namespace dtrun::collectives::over_tcp {

/// What goes over a connection.
enum class Traffic {
    streams,  ///< while both ends read and write
    bursts,   ///< messages, for which a receiver may have no time at once
};

/// A TCP socket whose calls do not block.
class Socket {
public:
    Socket() = default;
    explicit Socket(Fd fd) : fd_(std::move(fd)) {}

    /// Listens at an address, on a port that the system chooses. Errc: internal
    static Result<Socket> listen(const std::string& ip);
    /// Begins to connect. Errc: internal
    static Result<Socket> connect(const sockaddr_storage& address);
    /// The next connection of a listening socket; none if nobody has come.
    Socket accept() const;

    int fd() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }
    void close() { fd_.reset(); }
    sockaddr_storage local_address() const;
    /// Whom a connection is with; nobody once it was reset.
    sockaddr_storage peer_address() const;
    /// Of a connection that was begun, once it can be written: why it was not made.
    Result<void> connected() const;

    /// \return how many bytes went; 0: it would have to wait. Errc: closed
    Result<std::size_t> send(std::span<const iovec> parts) const;
    Result<std::size_t> receive(void* data, std::size_t bytes) const;

    /// Shuts both directions down: whoever waits at either end is woken up. The other end gets POLLPRI,
    /// which it does not get from a mere close.
    void shut() const noexcept;
    /// Sends without delay, enlarges the send buffer as far as the system allows, within reason, and takes the
    /// congestion control that DTRUN_TCP_CONGESTION names, or for bursts cubic instead of BBR.
    void prepare(Traffic traffic) const;
    std::size_t send_room() const;

private:
    Fd fd_;
};

}  // namespace dtrun::collectives::over_tcp
