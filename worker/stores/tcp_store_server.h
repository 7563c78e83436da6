#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/peer_user.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::stores {

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

    /// Finds out whose a connection from another host is, by its ends there and here; tells later.
    using AskUser = std::function<void(const tcp::endpoint&, const tcp::endpoint&,
                                       std::function<void(PeerUser)>)>;
    /// Who may connect besides processes of this machine.
    struct Peers {
        std::vector<std::string> addresses;  ///< numeric
        AskUser ask;  ///< must say that it is a process of ours; if none, nobody is
    };

    /// A generation begins: connections of the one before are closed, and `store` is empty. Before
    /// the first nobody is served.
    void begin(JobStore& store, std::uint32_t world_size, Peers peers);

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
    void ask_whose(tcp::socket socket, std::string address);
    void turn_away(std::string_view who, std::string_view why);
    void enter(tcp::socket socket, std::string address, bool from_here);
    bool is_from_here(const tcp::socket& socket, const std::string& address) const;
    asio::awaitable<void> serve(Shared connection);
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
    AskUser ask_user_;
    std::set<std::shared_ptr<tcp::socket>> asked_about_;
    std::set<std::string, std::less<>> turned_away_;
    std::set<Shared> connections_;
    std::vector<std::weak_ptr<Connection>> undecided_;  ///< see TcpStoreSession::reconsider()
    bool more_ranks_ = false;  ///< than the job has: the program starts some itself
    std::size_t complaints_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun::stores
