#pragma once

#include "base/fd.h"

#include <cstdint>
#include <vector>

namespace dtrun {

/// Free TCP ports in a row, bound so that they stay free until their users come. They lie outside
/// the range from which the kernel picks ports for outgoing connections, so that they stay free a
/// moment longer than that.
class ReservedPorts {
public:
    ReservedPorts() = default;
    /// None if `count` is 0, or no such row was found.
    explicit ReservedPorts(std::uint32_t count);

    std::uint16_t first() const { return first_; }  ///< 0: none
    /// Lets others connect to the first, for them to see that they can; nobody accepts. Idempotent.
    void listen_on_first();
    /// The first's socket, for who serves there himself; bound anew if it was released, and empty if
    /// somebody else has it then.
    Fd take_first();
    void release();  ///< for the ranks; the numbers stay

private:
    std::vector<Fd> sockets_;
    std::uint16_t first_ = 0;
};

}  // namespace dtrun
