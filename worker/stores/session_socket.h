#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/msgpack.h"

#include <sys/socket.h>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace dtrun::stores {

/// The socket of a session that does no input or output itself: bytes in, bytes out. Reads only while
/// the session wants input, and sends at once what the kernel takes, so that a client that does not read
/// holds up nobody else.
///
/// A Session has wants_input(), has_output(), output(), sent(), take_output() and failure().
///
/// Thread: the executor's. Lifetime: whoever runs run() holds a shared pointer until it ends; `tasks`
/// outlives it.
template <class Socket, class Session>
class SessionSocket : public std::enable_shared_from_this<SessionSocket<Socket, Session>> {
public:
    SessionSocket(Socket socket, TaskGroup& tasks)
        : socket_(std::move(socket)),
          wake_(socket_.get_executor(), Timer::time_point::max()),
          tasks_(tasks) {}
    virtual ~SessionSocket() = default;
    SessionSocket(const SessionSocket&) = delete;
    SessionSocket& operator=(const SessionSocket&) = delete;

    /// The session may call flush() from now on.
    template <class... Arguments>
    void begin(Arguments&&... arguments) {
        session_.emplace(std::forward<Arguments>(arguments)...);
    }
    /// Reads for the session until the connection is closed, by whomever. After it there is no session.
    asio::awaitable<void> run();

    /// Sends the output as far as the kernel takes it; a coroutine sends the rest. To be called
    /// when something else than this socket may have caused output.
    void flush();

    /// run() ends soon. Leaves the session, as this may be within a call of it.
    void close() noexcept;
    /// close(), and ends the session.
    void end() noexcept {
        close();
        session_.reset();
    }

    bool closed() const { return closed_; }
    Session& session() { return *session_; }  ///< unless closed
    const Session& session() const { return *session_; }

protected:
    Socket& socket() { return socket_; }
    bool writing() const { return writing_; }  ///< the kernel took less than there was

private:
    /// Where the next bytes from the socket belong.
    virtual std::span<char> room() = 0;
    virtual void received(std::size_t bytes) = 0;
    /// Whether the kernel takes output at once.
    virtual void set_writable(bool) {}
    /// The session has failed; the connection is closed after this.
    virtual void failed(const Error& failure) = 0;
    /// At the end of flush(), unless the connection was closed.
    virtual void flushed() = 0;

    asio::awaitable<void> write_rest(std::shared_ptr<SessionSocket> self);

    Socket socket_;
    std::optional<Session> session_;
    Timer wake_;  ///< of the reader that waits for wants_input()
    TaskGroup& tasks_;
    bool resting_ = false;  ///< the reader waits for that
    bool writing_ = false;  ///< write_rest() runs
    bool closed_ = false;
};

template <class Socket, class Session>
asio::awaitable<void> SessionSocket<Socket, Session>::run() {
    while (!closed_) {
        if (!session_->wants_input()) {
            resting_ = true;
            co_await wake_.async_wait(use_tuple);
            continue;
        }
        const std::span<char> into = room();
        const auto buffer = asio::buffer(into.data(), into.size());
        const auto [error, bytes] = co_await socket_.async_read_some(buffer, use_tuple);
        if (error || closed_) break;
        received(bytes);
        flush();
    }
    end();
}

template <class Socket, class Session>
void SessionSocket<Socket, Session>::flush() {
    if (closed_) return;
    while (session_->has_output() && !writing_) {
        const std::string_view output = session_->output();
        const ssize_t sent = ::send(socket_.native_handle(), output.data(), output.size(),
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            session_->sent(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            writing_ = true;
            set_writable(false);
            tasks_.spawn(write_rest(this->shared_from_this()));
        } else if (errno != EINTR) {
            return close();
        }
    }
    if (const auto& failure = session_->failure(); failure && !writing_) {
        failed(*failure);
        return close();
    }
    flushed();
    if (std::exchange(resting_, false)) wake_.cancel();
}

template <class Socket, class Session>
asio::awaitable<void> SessionSocket<Socket, Session>::write_rest(
    [[maybe_unused]] std::shared_ptr<SessionSocket> self) {
    while (!closed_ && session_->has_output()) {
        const Bytes rest = session_->take_output();
        const auto buffer = asio::buffer(rest);
        const auto [error, bytes] = co_await asio::async_write(socket_, buffer, use_tuple);
        if (closed_) co_return;
        if (error) {
            close();
            co_return;
        }
    }
    writing_ = false;
    if (closed_) co_return;
    set_writable(true);
    flush();
}

template <class Socket, class Session>
void SessionSocket<Socket, Session>::close() noexcept {
    boost::system::error_code ignored;
    closed_ = true;
    socket_.close(ignored);
    wake_.cancel();
}

}  // namespace dtrun::stores
