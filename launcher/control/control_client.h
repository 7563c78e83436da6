#pragma once

#include "base/loop/asio.h"
#include "base/result.h"
#include "launcher/control/control_place.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/control_messages.h"
#include "rendezvous/wire/message.h"

#include <functional>
#include <memory>

namespace dtrun::control {

/// A command's connection to the head of a job.
///
/// Thread: the executor's. Lifetime: run() has ended before it is destroyed.
class ControlClient {
public:
    ControlClient(asio::any_io_executor executor, JobSocket job)
        : executor_(std::move(executor)), job_(std::move(job)) {}

    /// Connects and asks, and takes each piece of the answer, up to the last.
    /// \return the code of that. Errc: unreachable, denied (the socket is somebody else's), closed (the
    /// job has ended meanwhile), timed_out, invalid_input
    asio::awaitable<Result<int>> run(ControlRequest ask, std::function<void(const Answer&)> take);

    /// Sends what is typed, or its terminal's size; nothing once the connection has ended.
    template <class Message>
    void say(const Message& message) {
        if (link_) link_->send(encode(message));
    }
    void stop() noexcept;  ///< run() then returns cancelled

private:
    asio::any_io_executor executor_;
    JobSocket job_;
    std::unique_ptr<Link> link_;
};

/// Writes a piece of an answer to standard output or standard error. Errc: closed (nobody reads it)
Result<void> write_answer(const Answer& answer);

}  // namespace dtrun::control
