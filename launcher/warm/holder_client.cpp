#include "launcher/warm/holder_client.h"

#include "base/fd.h"
#include "base/loop/task_group.h"
#include "rendezvous/wire/message.h"

#include <array>
#include <utility>

namespace dtrun::warm {

Result<HolderConnection> HolderConnection::open(asio::any_io_executor executor,
                                                const std::string& path) {
    Unix::socket socket(std::move(executor));
    boost::system::error_code error;
    socket.open(Unix(), error);
    if (!error) close_on_exec(socket.native_handle());
    // One that accepts nothing any more, as it was stopped, is not waited for.
    if (!error) socket.non_blocking(true, error);
    if (!error) socket.connect(Unix::endpoint(path), error);
    if (error)
        return fail(error == boost::system::errc::connection_refused ||
                            error == boost::system::errc::no_such_file_or_directory
                        ? Errc::closed
                        : Errc::internal,
                    "{}: {}", path, error.message());
    if (const auto user = foreign_user(socket.native_handle()))
        return fail(Errc::denied, "{}: who listens there is user {}", path, *user);
    return HolderConnection(std::move(socket));
}

asio::awaitable<Result<void>> HolderConnection::send(Bytes frame, Deadline deadline) {
    DeadlineGuard guard(socket_, deadline);
    const auto buffer = asio::buffer(frame);
    const auto [error, bytes] = co_await asio::async_write(socket_, buffer, use_tuple);
    if (guard.expired()) co_return fail(Errc::timed_out, "the holder does not read");
    if (error == asio::error::operation_aborted) co_return fail(Errc::cancelled, "closed");
    if (error) co_return fail(Errc::closed, "{}", error.message());
    co_return Result<void>{};
}

asio::awaitable<Result<std::string>> HolderConnection::receive_payload(FrameType type,
                                                                       Deadline deadline) {
    std::array<char, 16384> bytes;
    for (;;) {
        std::string_view rest = received_;
        const auto frame = next_frame(rest);
        if (!frame) co_return std::unexpected(frame.error());
        if (*frame && (*frame)->type != type)
            co_return fail(Errc::invalid_input, "the holder answers in another language");
        if (*frame) {
            std::string payload((*frame)->payload);
            received_.erase(0, received_.size() - rest.size());
            co_return payload;
        }
        DeadlineGuard guard(socket_, deadline);
        const auto buffer = asio::buffer(bytes);
        const auto [error, n] = co_await socket_.async_read_some(buffer, use_tuple);
        if (guard.expired()) co_return fail(Errc::timed_out, "the holder does not answer");
        if (error == asio::error::operation_aborted) co_return fail(Errc::cancelled, "closed");
        if (error) co_return fail(Errc::closed, "the holder has ended");
        received_.append(bytes.data(), n);
    }
}

template <class M>
asio::awaitable<Result<M>> HolderConnection::receive(Deadline deadline) {
    const auto payload = co_await receive_payload(MessageTraits<M>::kType, deadline);
    if (!payload) co_return std::unexpected(payload.error());
    co_return decode<M>(*payload);
}

template asio::awaitable<Result<WarmAnswer>> HolderConnection::receive(Deadline);
template asio::awaitable<Result<WarmStream>> HolderConnection::receive(Deadline);

void HolderConnection::close() noexcept {
    boost::system::error_code ignored;
    socket_.close(ignored);
}

namespace {

asio::awaitable<Result<WarmAnswer>> ask(std::string path, WarmRequest request, Deadline deadline) {
    auto opened = HolderConnection::open(co_await asio::this_coro::executor, path);
    if (!opened) co_return std::unexpected(opened.error());
    Bytes frame = encode(request);
    const auto sent = co_await opened->send(std::move(frame), deadline);
    if (!sent) co_return std::unexpected(sent.error());
    auto answer = co_await opened->receive<WarmAnswer>(deadline);
    co_return answer;
}

asio::awaitable<void> ask_into(HolderAnswer& told, WarmRequest request, Deadline deadline) {
    auto answer = co_await ask(told.path, std::move(request), deadline);
    told.answer = std::move(answer);
}

}  // namespace

asio::awaitable<std::vector<HolderAnswer>> ask_holders(std::vector<std::string> paths,
                                                       WarmRequest request, Deadline deadline) {
    std::vector<HolderAnswer> all;
    for (std::string& path : paths) all.push_back({std::move(path), {}});
    TaskGroup asking(co_await asio::this_coro::executor);
    for (HolderAnswer& told : all) asking.spawn(ask_into(told, request, deadline));
    co_await asking.join();
    co_return all;
}

}  // namespace dtrun::warm
