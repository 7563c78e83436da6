#include "launcher/control/control_client.h"

#include "base/fd.h"
#include "base/loop/deadline.h"
#include "base/loop/task_group.h"
#include "rendezvous/wire/message.h"

#include <unistd.h>
#include <chrono>
#include <optional>
#include <utility>

namespace dtrun::control {

namespace {

constexpr std::chrono::seconds kOnTheWay{2};

/// A link that a DeadlineGuard ends.
struct Closing {
    Link& link;
    asio::any_io_executor executor;

    asio::any_io_executor get_executor() const { return executor; }
    void cancel() { link.close(); }
};

}  // namespace

asio::awaitable<Result<int>> ControlClient::run(ControlRequest ask,
                                                std::function<void(const Answer&)> take) {
    Unix::socket socket(executor_);
    boost::system::error_code error;
    socket.connect(Unix::endpoint(job_.path), error);
    // It was there when it was looked for.
    if (error == boost::system::errc::no_such_file_or_directory ||
        error == boost::system::errc::connection_refused)
        co_return fail(Errc::closed, "the job has ended");
    if (error) co_return fail(Errc::unreachable, "job {}: {}", job_.job, error.message());
    if (const auto user = foreign_user(socket.native_handle()))
        co_return fail(Errc::denied, "{}: its dtrun runs as user {}", job_.path, *user);
    link_ = std::make_unique<Link>(std::move(socket));
    TaskGroup writer(executor_);
    writer.spawn(link_->run_writer());
    link_->send(encode(ask));
    std::optional<int> code;
    const std::function<Result<void>(const FrameView&)> handle =
        [&](const FrameView& frame) -> Result<void> {
        const auto answer = decode<Answer>(frame.payload);
        if (frame.type != FrameType::answer || !answer)
            return fail(Errc::invalid_input, "job {}: it answers in another language", job_.job);
        take(*answer);
        if (!answer->last) return {};
        code = answer->code;
        return fail(Errc::closed, "this was the last");
    };
    Closing closing{*link_, executor_};
    std::optional<DeadlineGuard<Closing>> guard;
    // The head answers before; if it is stopped, nobody does.
    if (ask.command == ControlCommand::stacks || ask.command == ControlCommand::view)
        guard.emplace(closing, after(std::chrono::milliseconds(ask.limit_ms) + kOnTheWay));
    const auto served = co_await link_->serve(handle);
    const bool in_time = !guard || !guard->expired();
    guard.reset();
    link_->close();
    co_await writer.join();
    link_.reset();
    if (code) co_return *code;
    if (!in_time)
        co_return fail(Errc::timed_out, "job {}: its dtrun does not answer; is it stopped?",
                       job_.job);
    if (served.error().code != Errc::closed) co_return std::unexpected(served.error());
    co_return fail(Errc::closed, "the job has ended");
}

void ControlClient::stop() noexcept {
    if (link_) link_->close();
}

Result<void> write_answer(const Answer& answer) {
    return write_all(answer.stream == Stream::err ? STDERR_FILENO : STDOUT_FILENO, answer.text);
}

}  // namespace dtrun::control
