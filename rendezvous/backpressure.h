#pragma once

#include "base/loop/asio.h"

namespace dtrun {

/// Something that can have too much to send. Whoever would add to it is not read from until there is
/// room again, so that memory is bounded by what one peer leaves unread, and nobody is cut off for
/// being slow.
///
/// Thread: the executor's.
class Backpressure {
public:
    virtual ~Backpressure() = default;
    virtual bool is_full() const = 0;
    /// Returns when there may be room, or never will be: is_full() is to be asked again.
    virtual asio::awaitable<void> room() = 0;
};

}  // namespace dtrun
