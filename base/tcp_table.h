#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace dtrun {

/// A connection, or who listens, as /proc/net/tcp and tcp6 have it. The texts are parts of what was read.
struct TcpRow {
    std::string_view
        local;  ///< "0100007F:1F90": the address in words of 32 bits, each in the order of this machine
    std::string_view remote;  ///< the same
    std::string_view state;   ///< "01": established, "0A": listening
    std::uint32_t user = 0;
    std::uint64_t inode = 0;  ///< 0: it has no owner any more
};

/// The rows of such a file. What is no row is left out, as the titles are.
std::vector<TcpRow> tcp_rows(std::string_view table);

}  // namespace dtrun
