#pragma once

#include "base/loop/asio.h"

#include <cstddef>
#include <deque>
#include <memory>

namespace dtrun {

/// Shares the turns of an event loop among links: in each of them only so many write to their sockets, and all others
/// follow in the next ones, those first who came first. So what is told to thousands of peers at once does not keep
/// the loop from everything else. Links that write now and then do not notice.
///
/// Thread: the executor's. Lifetime: outlives what waits.
class SendTurns {
public:
    static constexpr std::size_t kWritesMax = 256;  ///< about 2 ms

    explicit SendTurns(asio::any_io_executor executor, std::size_t writes_max = kWritesMax)
        : executor_(std::move(executor)), writes_max_(writes_max) {}

    /// \return whether one more may write in this turn
    bool take();
    /// `wake` is cancelled in a turn in which it may write: it need not take() that one.
    void wait(Timer& wake) { waiting_.push_back(&wake); }
    void leave(Timer& wake) noexcept { std::erase(waiting_, &wake); }

private:
    void count();
    void next();

    asio::any_io_executor executor_;
    std::size_t writes_max_;
    std::size_t writes_ = 0;  ///< in this turn; if there are any, next() is called at its end
    std::deque<Timer*> waiting_;
    std::shared_ptr<SendTurns*> self_ = std::make_shared<SendTurns*>(this);
};

}  // namespace dtrun
