#pragma once

#include "base/fd.h"

#include <atomic>
#include <cstdint>
#include <optional>

namespace dtrun::collectives::over_tcp {

/// Tells a rank that waits for one peer that another one has failed, or that it is told to stop itself.
///
/// Thread: one at a time, but raise() and ended() from any.
class AbortSignal {
public:
    AbortSignal();

    /// Rings once the peer at the other end of the socket has shut it, as opposed to closed it.
    void watch(int fd, std::uint32_t peer);
    void raise() noexcept;
    const std::atomic<bool>& ended() const { return ended_; }

    /// Can be read once it is raised.
    int fd() const { return epoll_.get(); }
    /// The peer because of which it is raised, if that is not because of raise().
    std::optional<std::uint32_t> caused_by() const;

private:
    Fd epoll_;
    Fd event_;
    std::atomic<bool> ended_ = false;
};

}  // namespace dtrun::collectives::over_tcp
