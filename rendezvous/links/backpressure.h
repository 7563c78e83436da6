#pragma once

#include "base/loop/asio.h"

namespace dtrun {

/// A destination whose send queue can be full. A connection whose frames would add to it is not
/// read until there is room again: memory stays bounded by what one peer leaves unread, and slow
/// peers are not cut off.
///
/// Thread: the executor's.
class Backpressure {
public:
    virtual ~Backpressure() = default;
    virtual bool is_full() const = 0;
    /// Returns when there may be room, or when there never will be; the caller asks is_full()
    /// again.
    virtual asio::awaitable<void> room() = 0;
};

}  // namespace dtrun
