#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/doctor_messages.h"

#include <cstdint>
#include <list>
#include <memory>
#include <string>

// How hosts find out whether they reach each other, and how fast. A caller shows the token of the
// examination and says what it wants: 32 bytes, 'v' or 'x', and a u64 of bytes, big-endian. 'v' is answered
// with 'v'. After 'x' both send an eighth of those bytes and 'k', and then all of them and 'k', each 'k'
// once everything of the other side has come.

namespace dtrun::doctor {

/// Where others may try to reach this host while it is examined: a port at all its addresses. Whoever does not
/// know the token is hung up on, and of too many that have not shown it the oldest.
///
/// Thread: the loop's. Lifetime: join() before destruction, unless the process ends.
class ProbeListener {
public:
    /// Errc: internal (no port)
    static Result<std::unique_ptr<ProbeListener>> open(asio::any_io_executor executor,
                                                       std::string token);

    std::uint16_t port() const { return port_; }
    asio::awaitable<void> join();

private:
    ProbeListener(tcp::acceptor acceptor, std::string token);
    asio::awaitable<void> accept();
    asio::awaitable<void> serve(std::shared_ptr<tcp::socket> socket);

    tcp::acceptor acceptor_;
    const std::string token_;
    std::uint16_t port_ = 0;
    std::list<std::shared_ptr<tcp::socket>>
        strangers_;  ///< have not shown the token; the oldest first
    TaskGroup tasks_;
};

/// Tries ports of other hosts, side by side.
asio::awaitable<Visited> visit(std::string token, Visit order);

/// Exchanges bytes with another host through its port. What has come through within the limit counts.
asio::awaitable<Speed> test_speed(std::string token, SpeedTest order);

}  // namespace dtrun::doctor
