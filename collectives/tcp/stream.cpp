#include "collectives/tcp/stream.h"

#include <sys/uio.h>

#include <array>

namespace dtrun::collectives::over_tcp {

Result<void> Outlet::send(std::size_t offset, std::size_t bytes, std::size_t at) {
    PartHeader header{.tag = tag_, .at = at, .bytes = bytes};
    const std::array parts{iovec{&header, sizeof header},
                           iovec{const_cast<std::byte*>(data_ + offset), bytes}};
    return mesh_.write(peer_, parts);
}

Result<void> Inlet::receive() {
    PartHeader header;
    if (auto read = mesh_.read(peer_, &header, sizeof header); !read) return read;
    const bool fits = header.at <= bytes_ && header.bytes <= bytes_ - header.at;
    if (header.tag != tag_ || !fits) return mesh_.wait_for_end(peer_);
    return mesh_.read(peer_, data_ + header.at, header.bytes);
}

}  // namespace dtrun::collectives::over_tcp
