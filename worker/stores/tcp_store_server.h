#pragma once

#include "base/asio.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/task_group.h"
#include "rendezvous/messages.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dtrun {

/// Serves torch's TCPStore, in every dialect from torch 1.13 on.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join(). A store outlives the
/// next begin(), or stop().
class TcpStoreServer {
public:
    explicit TcpStoreServer(asio::any_io_executor executor);
    ~TcpStoreServer();

    /// Takes over a bound socket and listens. Errc: internal
    Result<void> listen(Fd bound);

    /// A generation begins: connections of the one before are closed, and `store` is empty. Before
    /// the first nobody is served.
    /// \param peers  numeric addresses that may connect besides those of this machine
    void begin(JobStore& store, std::uint32_t world_size, std::vector<std::string> peers);

    /// Stops listening, and closes what there is; listen() may follow.
    void end() noexcept;

    /// Who has been waiting for how long, for what. A rank and its process are known of those who
    /// have said.
    std::vector<RankWait> waits() const;

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    struct Connection;
    using Shared = std::shared_ptr<Connection>;

    asio::awaitable<void> accept_loop();
    void admit(tcp::socket socket);
    bool is_from_here(const tcp::socket& socket, const std::string& address) const;
    asio::awaitable<void> serve(Shared connection);
    asio::awaitable<void> write_rest(Shared connection);
    void flush(Connection& connection);
    void close(Connection& connection) noexcept;
    void close_all() noexcept;
    bool has_idle_sibling(const Connection& connection) const;
    void is_rank(Connection& connection, std::uint32_t rank);
    RankWait wait_of(const Connection& connection) const;
    void complain(const std::string& text);

    asio::any_io_executor executor_;
    tcp::acceptor acceptor_;
    JobStore* store_ = nullptr;
    std::uint32_t world_size_ = 0;
    std::set<std::string> own_;    ///< addresses of this machine
    std::set<std::string> peers_;  ///< and of the job's other hosts
    std::set<std::string> turned_away_;
    std::set<Shared> connections_;
    std::vector<std::weak_ptr<Connection>> undecided_;  ///< see TcpStoreSession::reconsider()
    bool more_ranks_ = false;  ///< than the job has: the program starts some itself
    std::size_t complaints_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun
