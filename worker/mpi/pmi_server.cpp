#include "worker/mpi/pmi_server.h"

#include "base/log.h"
#include "base/milliseconds.h"
#include "worker/mpi/pmi_host.h"
#include "worker/mpi/pmi_session.h"
#include "worker/stores/session_socket.h"

#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace dtrun::mpi {
namespace {

/// After a fence that failed because a rank has ended. The job normally ends in this time, and its
/// report tells of that rank; MPI libraries, let go at once, would fill it with errors of their own.
constexpr std::chrono::seconds kGiveUpTime{3};

}  // namespace

struct PmiServer::Connection final : stores::SessionSocket<Unix::socket, PmiSession> {
    Connection(Unix::socket end, TaskGroup& tasks, std::uint32_t of_rank)
        : SessionSocket(std::move(end), tasks), rank(of_rank) {}

    const std::uint32_t rank;

private:
    std::span<char> room() override { return bytes_; }
    void received(std::size_t bytes) override { session().received({bytes_.data(), bytes}); }
    void failed(const Error& failure) override {
        log::warn("PMI: closed the connection of rank {}: {}", rank, failure.message);
    }
    void flushed() override {
        // Only this half: a client that still writes would get SIGPIPE instead of its own error.
        if (writing() || !session().is_over() || std::exchange(ended_, true)) return;
        boost::system::error_code ignored;
        socket().shutdown(Unix::socket::shutdown_send, ignored);
    }

    std::array<char, 4096> bytes_{};
    bool ended_ = false;  ///< the client has been told that no more comes
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
    leave_low_numbers(ours);
    leave_low_numbers(theirs);
    Unix::socket socket(executor_);
    boost::system::error_code error;
    socket.assign(Unix(), ours.get(), error);
    if (error) return fail(Errc::internal, "a socket for PMI: {}", error.message());
    ours.release();
    const auto connection = std::make_shared<Connection>(std::move(socket), tasks_, rank);
    connection->begin(*host_, rank, [raw = connection.get()] { raw->flush(); });
    connections_.insert(connection);
    tasks_.spawn(serve(connection));
    return theirs;
}

asio::awaitable<void> PmiServer::serve(Shared connection) {
    co_await connection->run();
    connections_.erase(connection);
}

asio::awaitable<void> PmiServer::give_up_later(std::uint64_t begun) {
    Timer timer(executor_, kGiveUpTime);
    co_await timer.async_wait(use_tuple);
    if (begun == begun_ && !tasks_.stopping()) host_->give_up();
}

std::vector<RankWait> PmiServer::waits() const {
    std::vector<RankWait> all;
    for (const Shared& connection : connections_) {
        if (connection->closed()) continue;
        const auto waiting = connection->session().waiting();
        if (!waiting) continue;
        RankWait& wait = all.emplace_back();
        wait.rank = Rank{connection->rank};
        wait.what = waiting->what;
        wait.starting = true;
        wait.mpi = connection->session().speaks_two() ? MpiWait::pmi2 : MpiWait::pmi1;
        wait.waited_ms = to_ms(Clock::now() - waiting->since);
    }
    std::ranges::sort(all, {}, &RankWait::rank);
    return all;
}

/// Nobody is in a barrier any more when this returns.
void PmiServer::close_all() noexcept {
    for (const Shared& connection : connections_) connection->end();
}

void PmiServer::stop() noexcept {
    close_all();
    tasks_.stop();
}

asio::awaitable<void> PmiServer::join() {
    return tasks_.join();
}

}  // namespace dtrun::mpi
