#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/stores/horovod_rendezvous.h"
#include "worker/stores/local_acceptor.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace dtrun::stores {

/// Serves Horovod's HTTP store to the ranks of this host, on loopback, out of the job's own store.
///
/// A request is one connection. Who has to wait is held: the client has no time limit of its own
/// for an answer. Its connection says when it has died.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join().
class HorovodServer {
public:
    explicit HorovodServer(asio::any_io_executor executor);
    ~HorovodServer();

    /// Listens on 127.0.0.1. \return the port. Errc: internal
    Result<std::uint16_t> listen();

    /// A generation begins: connections of the one before are closed, and `store`, which outlives
    /// the generation, is empty.
    /// \param ranks  of this host
    void begin(JobStore& store, std::uint32_t world_size, std::vector<RankSlot> ranks);

    /// Who has been waiting for how long, for what.
    std::vector<RankWait> waits() const;

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    struct Connection;

    asio::awaitable<void> accept_loop();
    asio::awaitable<void> serve(tcp::socket socket);
    asio::awaitable<void> converse(Connection& connection);
    asio::awaitable<bool> read_request(Connection& connection);
    asio::awaitable<void> hold(Connection& connection);
    asio::awaitable<void> answer(Connection& connection);
    asio::awaitable<void> linger(Connection& connection);
    void answered(HorovodRendezvous::Asker asker, const HttpAnswer& answer);
    void ended(Connection& connection);

    asio::any_io_executor executor_;
    LocalAcceptor acceptor_;
    Timer room_;  ///< cancelled when a connection ends
    std::unique_ptr<HorovodRendezvous> rendezvous_;
    std::map<HorovodRendezvous::Asker, Connection*> connections_;
    HorovodRendezvous::Asker last_asker_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun::stores
