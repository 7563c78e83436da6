#pragma once

#include "base/clock.h"
#include "base/loop/asio.h"

#include <memory>

namespace dtrun {

/// While alive, cancels the pending operations of `object` (a socket, a timer, a descriptor) once
/// the deadline passes. The operation then returns operation_aborted and expired() is true.
///
/// Thread: the object's. Lifetime: must not outlive `object`.
template <class Object>
class DeadlineGuard {
public:
    DeadlineGuard(Object& object, Deadline deadline)
        : timer_(object.get_executor(), deadline), state_(std::make_shared<State>(&object)) {
        timer_.async_wait([state = state_](boost::system::error_code error) {
            if (error || state->object == nullptr) return;
            state->expired = true;
            // cancel() of a socket that was closed meanwhile returns an error; a timer's returns
            // none.
            [[maybe_unused]] boost::system::error_code closed;
            if constexpr (requires { state->object->cancel(closed); })
                state->object->cancel(closed);
            else
                state->object->cancel();
        });
    }
    ~DeadlineGuard() { state_->object = nullptr; }
    DeadlineGuard(const DeadlineGuard&) = delete;
    DeadlineGuard& operator=(const DeadlineGuard&) = delete;

    bool expired() const { return state_->expired; }

private:
    struct State {
        explicit State(Object* o) : object(o) {}
        Object* object;
        bool expired = false;
    };
    Timer timer_;
    std::shared_ptr<State> state_;
};

}  // namespace dtrun
