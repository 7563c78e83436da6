#pragma once
// The one way to include Asio: a fixed set of headers, so that builds stay fast and one set of
// definitions holds everywhere.

#include "base/clock.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>

namespace dtrun {

namespace asio = boost::asio;
using asio::ip::tcp;
using Unix = asio::local::stream_protocol;
/// A TCP or a Unix connection.
using StreamSocket = asio::generic::stream_protocol::socket;

/// How long the loop sleeps until a timer is due. In a simulation it does not sleep: it says by when the
/// next timer is due, and the test moves the time there.
struct TimerWait {
    static Clock::duration to_wait_duration(const Clock::duration& wait) {
        if (Clock::simulated == nullptr) return wait;
        next = std::min(next, wait);
        return Clock::duration::zero();
    }
    static Clock::duration to_wait_duration(const Clock::time_point& due) {
        return to_wait_duration(due - Clock::now());
    }
    /// The shortest wait that was asked for since a simulation has set this to its maximum.
    static inline Clock::duration next = Clock::duration::max();
};

/// Expires at a moment of dtrun's Clock.
using Timer = asio::basic_waitable_timer<Clock, TimerWait>;

/// Completion token: awaits, and yields (error_code, values...) instead of throwing.
inline constexpr auto use_tuple = asio::as_tuple(asio::use_awaitable);

}  // namespace dtrun
