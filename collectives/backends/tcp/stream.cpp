#include "collectives/backends/tcp/stream.h"

#include <sys/uio.h>

#include <array>

namespace dtrun::collectives::over_tcp {

Result<void> SendStream::send(std::size_t offset, std::size_t bytes, std::size_t at) {
    PartHeader header{.tag = tag_, .at = at, .bytes = bytes};
    const std::array parts{iovec{&header, sizeof header},
                           iovec{const_cast<std::byte*>(data_ + offset), bytes}};
    return mesh_.write(peer_, parts);
}

Result<bool> RecvStream::receive(IfLate if_late) {
    const auto take = [&](std::byte* to, std::size_t bytes) -> Result<bool> {
        const Result<std::size_t> come = if_late == IfLate::wait
                                             ? mesh_.read(peer_, to, bytes)
                                             : mesh_.read_some(peer_, to, bytes);
        if (!come) return std::unexpected(come.error());
        come_ += *come;
        return *come == bytes;
    };
    if (come_ < sizeof header_) {
        auto* const to = reinterpret_cast<std::byte*>(&header_) + come_;
        if (auto whole = take(to, sizeof header_ - come_); !whole || !*whole) return whole;
        const bool fits = header_.at <= bytes_ && header_.bytes <= bytes_ - header_.at;
        if (header_.tag != tag_ || !fits) return std::unexpected(mesh_.wait_for_end(peer_));
    }
    const std::size_t had = come_ - sizeof header_;
    const auto whole = take(data_ + header_.at + had, header_.bytes - had);
    if (whole && *whole) come_ = 0;
    return whole;
}

}  // namespace dtrun::collectives::over_tcp
