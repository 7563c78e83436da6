#include "worker/mpi/pmi_server.h"

#include "base/log.h"
#include "worker/mpi/pmi_host.h"
#include "worker/mpi/pmi_session.h"

#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace dtrun::mpi {
namespace {

/// After a fence that failed because a rank has ended. The job normally ends in this time, and its
/// report tells of that rank; MPI libraries, let go at once, would fill it with errors of their own.
constexpr std::chrono::seconds kGiveUpTime{3};

}  // namespace

struct PmiServer::Connection : std::enable_shared_from_this<Connection> {
    Connection(asio::any_io_executor executor, std::uint32_t of_rank)
        : socket(executor), wake(executor, Timer::time_point::max()), rank(of_rank) {}

    Unix::socket socket;
    Timer wake;  ///< of the reader that waits for wants_input()
    const std::uint32_t rank;
    std::optional<PmiSession> session;  ///< none, if closed, as soon as that may be
    std::array<char, 4096> bytes{};
    bool resting = false;  ///< the reader waits
    bool writing = false;
    bool ended = false;  ///< the client has been told that no more comes
    bool closed = false;
};

PmiServer::PmiServer(asio::any_io_executor executor, MpiNetwork& network, MpiObserver& observer)
    : executor_(executor), network_(network), observer_(observer), tasks_(executor) {}

PmiServer::~PmiServer() {
    close_all();
}

void PmiServer::begin(const MpiWorld& world, MpiMode mode) {
    close_all();
    const std::uint64_t begun = ++begun_;
    host_ = std::make_unique<PmiHost>(world, mode, network_, observer_,
                                      [this, begun] { tasks_.spawn(give_up_later(begun)); });
}

Result<Fd> PmiServer::connect(std::uint32_t rank) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return fail(Errc::internal, "a socket for PMI: {}", std::strerror(errno));
    Fd ours(ends[0]), theirs(ends[1]);
    const auto connection = std::make_shared<Connection>(executor_, rank);
    boost::system::error_code error;
    connection->socket.assign(Unix(), ours.get(), error);
    if (error) return fail(Errc::internal, "a socket for PMI: {}", error.message());
    ours.release();
    Connection* const raw = connection.get();
    connection->session.emplace(*host_, rank, [this, raw] { flush(*raw); });
    connections_.insert(connection);
    tasks_.spawn(serve(connection));
    return theirs;
}

asio::awaitable<void> PmiServer::serve(Shared connection) {
    while (!connection->closed) {
        if (!connection->session->wants_input()) {
            connection->resting = true;
            co_await connection->wake.async_wait(use_tuple);
            continue;
        }
        const auto buffer = asio::buffer(connection->bytes);
        const auto [error, size] = co_await connection->socket.async_read_some(buffer, use_tuple);
        if (error || connection->closed) break;
        const std::string_view bytes(connection->bytes.data(), size);
        connection->session->received(bytes);
        flush(*connection);
    }
    close(*connection);
    connection->session.reset();
    connections_.erase(connection);
}

/// Sends what there is, as far as the kernel takes it; the rest is for a coroutine.
void PmiServer::flush(Connection& connection) {
    if (connection.closed || connection.writing) return;
    PmiSession& session = *connection.session;
    while (session.has_output()) {
        const std::string_view output = session.output();
        const ssize_t sent = ::send(connection.socket.native_handle(), output.data(), output.size(),
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            session.sent(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            connection.writing = true;
            tasks_.spawn(write_rest(connection.shared_from_this()));
            return;
        } else if (errno != EINTR) {
            return close(connection);
        }
    }
    if (const auto& failure = session.failure()) {
        log::warn("PMI: closed the connection of rank {}: {}", connection.rank, failure->message);
        return close(connection);
    }
    // Only this half: a client that still writes would get SIGPIPE instead of its own error.
    if (session.is_over() && !std::exchange(connection.ended, true)) {
        boost::system::error_code ignored;
        connection.socket.shutdown(Unix::socket::shutdown_send, ignored);
    }
    if (std::exchange(connection.resting, false)) connection.wake.cancel();
}

asio::awaitable<void> PmiServer::write_rest(Shared connection) {
    while (!connection->closed && connection->session->has_output()) {
        const Bytes rest = connection->session->take_output();
        const auto buffer = asio::buffer(rest);
        const auto [error, size] =
            co_await asio::async_write(connection->socket, buffer, use_tuple);
        if (connection->closed) co_return;
        if (error) {
            close(*connection);
            co_return;
        }
    }
    connection->writing = false;
    flush(*connection);
}

asio::awaitable<void> PmiServer::give_up_later(std::uint64_t begun) {
    Timer timer(executor_, kGiveUpTime);
    co_await timer.async_wait(use_tuple);
    if (begun == begun_ && !tasks_.stopping()) host_->give_up();
}

std::vector<RankWait> PmiServer::waits() const {
    std::vector<RankWait> all;
    for (const Shared& connection : connections_) {
        if (connection->closed) continue;
        const auto waiting = connection->session->waiting();
        if (!waiting) continue;
        const auto waited =
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - waiting->since);
        RankWait& wait = all.emplace_back();
        wait.rank = connection->rank;
        wait.what = waiting->what;
        wait.starting = true;
        wait.waited_ms = static_cast<std::uint32_t>(
            std::min<std::int64_t>(waited.count(), std::numeric_limits<std::uint32_t>::max()));
    }
    std::ranges::sort(all, {}, &RankWait::rank);
    return all;
}

/// Its reader removes it, and the session: this may be within a call of that.
void PmiServer::close(Connection& connection) noexcept {
    boost::system::error_code ignored;
    connection.closed = true;
    connection.socket.close(ignored);
    connection.wake.cancel();
}

/// Nobody is in a barrier any more when this returns.
void PmiServer::close_all() noexcept {
    for (const Shared& connection : connections_) {
        close(*connection);
        connection->session.reset();
    }
}

void PmiServer::stop() noexcept {
    close_all();
    tasks_.stop();
}

asio::awaitable<void> PmiServer::join() {
    return tasks_.join();
}

}  // namespace dtrun::mpi
