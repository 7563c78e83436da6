#pragma once

#include "base/loop/asio.h"
#include "base/loop/local_acceptor.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/stores/horovod_elastic.h"
#include "worker/stores/horovod_rendezvous.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace dtrun::stores {

/// Serves Horovod's HTTP store to the ranks of this host, on loopback, out of the job's own store.
///
/// A request is one connection. Who has to wait is held: the client has no time limit of its own
/// for an answer. Its connection says when it has died.
///
/// Thread: the executor's. Lifetime: `rejoins` outlives it; the owner calls stop() and awaits join().
class HorovodServer {
public:
    /// \param rejoins  of the processes of an elastic job; each is started() there before it is listened for
    HorovodServer(asio::any_io_executor executor, RejoinQueue& rejoins);
    ~HorovodServer();

    /// Listens on 127.0.0.1 for all processes. \return the port. Errc: internal
    Result<std::uint16_t> listen();
    /// Listens there for one process of an elastic job, until that has ended().
    Result<std::uint16_t> listen_for(SlotIndex place);
    void ended(SlotIndex place);
    /// Tells all processes that hosts have changed, until each of them asks for a new place or begin() is
    /// called.
    void notify();
    /// Where ranks listen for each other, as HorovodRendezvous has it; none before the first generation.
    HorovodRendezvous::Endpoints endpoints() const;

    /// A generation begins: connections of the one before are closed, and `store`, which outlives
    /// the generation, is empty. Processes that wait in the queue are answered after that, by it.
    void begin(JobStore& store, const Assign& world);

    /// Who has been waiting for how long, for what.
    std::vector<RankWait> waits() const;

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    struct Connection;
    /// A port: of one process, or of all.
    struct Door {
        LocalAcceptor acceptor;
        std::optional<SlotIndex> process;
    };

    Result<std::uint16_t> open(std::optional<SlotIndex> process);
    asio::awaitable<void> accept_loop(std::shared_ptr<Door> door);
    asio::awaitable<void> serve(tcp::socket socket, std::optional<SlotIndex> process);
    void ask(Connection& connection);
    void pass(HorovodRendezvous::Asker asker, HttpRequest request);
    asio::awaitable<void> notify_process(SlotIndex place, std::uint64_t change);
    asio::awaitable<void> converse(Connection& connection);
    asio::awaitable<bool> read_request(Connection& connection);
    asio::awaitable<void> hold(Connection& connection);
    asio::awaitable<void> answer(Connection& connection);
    asio::awaitable<void> linger(Connection& connection);
    void answered(HorovodRendezvous::Asker asker, const HttpAnswer& answer);
    void ended(Connection& connection);

    asio::any_io_executor executor_;
    std::vector<std::shared_ptr<Door>> doors_;
    HorovodElastic rejoins_;
    std::uint64_t change_ = 0;  ///< that processes are told of; others are no news any more
    std::int64_t last_notice_ = 0;
    Timer room_;  ///< cancelled when a connection ends
    std::unique_ptr<HorovodRendezvous> rendezvous_;
    std::map<HorovodRendezvous::Asker, Connection*> connections_;
    HorovodRendezvous::Asker last_asker_ = 0;
    TaskGroup tasks_;
};

}  // namespace dtrun::stores
