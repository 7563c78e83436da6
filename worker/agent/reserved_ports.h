#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dtrun::agent {

/// Free TCP ports in a row, bound so that they stay free until their users come. They lie outside
/// the range from which the kernel picks ports for outgoing connections, so that they stay free a
/// moment longer than that.
class ReservedPorts {
public:
    ReservedPorts();
    /// None if `count` is 0, or no such row was found.
    explicit ReservedPorts(std::uint32_t count);
    ReservedPorts(ReservedPorts&&) noexcept;
    ReservedPorts& operator=(ReservedPorts&&) noexcept;
    ~ReservedPorts();

    std::uint16_t first() const { return first_; }  ///< 0: none
    /// Listens on the first port, so that others can see that it is reachable, and closes what
    /// connects, so that the backlog has room. Ends with take_first() or release(). Call it once.
    void listen_on_first(asio::any_io_executor executor);
    /// The first port's socket, for a server of ours; bound anew if it was released, and empty if
    /// another process has the port by then.
    Fd take_first();
    void release();  ///< for the ranks; the numbers stay

private:
    class Door;

    std::vector<Fd> sockets_;
    std::shared_ptr<Door> door_;
    std::uint16_t first_ = 0;
};

}  // namespace dtrun::agent
