#pragma once

#include "base/result.h"
#include "collectives/backends/tcp/socket.h"
#include "rendezvous/wire/sealing.h"

#include <cstddef>
#include <span>
#include <string>

namespace dtrun::collectives::over_tcp {

/// What goes over a socket in encrypted records. Thread: one at a time.
class SealedStream {
public:
    explicit SealedStream(Sealing sealing) : sealing_(std::move(sealing)) {}

    /// As Socket::send(); but bytes have gone once the records that they are in have, and until then the next call
    /// has to offer the same ones again. Errc: closed
    Result<std::size_t> send(const Socket& socket, std::span<const iovec> parts);
    /// As Socket::receive(). Errc: closed, also if somebody has changed what came
    Result<std::size_t> receive(const Socket& socket, void* data, std::size_t bytes);
    /// Whether something has come that receive() has not handed out: the socket does not tell.
    bool has_ahead() const { return plain_at_ < plain_.size(); }

private:
    Result<bool> hear(const Socket& socket);

    Sealing sealing_;
    Bytes to_seal_;
    Bytes out_;               ///< records on their way
    std::size_t out_at_ = 0;  ///< of them, bytes that have gone
    std::size_t going_ = 0;   ///< bytes that are in them
    Bytes in_;                ///< room for what comes of records
    std::size_t in_end_ = 0;  ///< bytes of it that are used
    Bytes plain_;             ///< what was in them
    std::size_t plain_at_ = 0;
};

}  // namespace dtrun::collectives::over_tcp
