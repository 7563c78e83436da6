#pragma once

#include "base/loop/accept.h"
#include "base/loop/asio.h"
#include "base/result.h"

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun {

/// Listens on loopback, for processes of this user alone.
///
/// Thread: the executor's.
class LocalAcceptor {
public:
    /// \param what  is served, for messages: "PMIx"
    LocalAcceptor(asio::any_io_executor executor, std::string what);

    /// \return the port on 127.0.0.1. Errc: internal
    Result<std::uint16_t> listen();
    /// The next connection of ours; nothing once it is closed. Others, who may have an account on this
    /// machine, are turned away, with one warning for all.
    asio::awaitable<std::optional<tcp::socket>> next();
    void close() noexcept;

private:
    const std::string what_;
    tcp::acceptor acceptor_;
    AcceptTrouble trouble_;
    bool told_of_strangers_ = false;
};

}  // namespace dtrun
