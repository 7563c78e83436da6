#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "contracts/variables.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/agent/reserved_ports.h"
#include "worker/ranks/rank_service.h"
#include "worker/stores/horovod_server.h"
#include "worker/stores/local_store.h"
#include "worker/stores/relayed_store.h"
#include "worker/stores/remote_processes.h"
#include "worker/stores/tcp_store_server.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace dtrun::agent {

/// The stores that frameworks bring their ranks together with, as one agent serves them.
class ForeignStores final : public ranks::RankService {
public:
    struct Parts {
        asio::any_io_executor executor;
        stores::RelayedStore::Send
            send;                      ///< takes frames for the job's own store, towards the root
        bool torch_proxy = false;      ///< torch's store is served on loopback
        bool elastic = false;          ///< processes under hvd.elastic.run may live on
        stores::RejoinQueue& rejoins;  ///< where they ask for their places
        const contracts::ContractFacts& facts;
        const contracts::Environment& user;  ///< what ranks have without contracts
        ReservedPorts& ports;                ///< the first is MASTER_PORT, if rank 0 comes here
    };
    explicit ForeignStores(Parts parts);

    /// Listens on loopback for Horovod, and where `torch_proxy` for torch. Errc: internal
    Result<void> open(contracts::ContractFacts& facts) override;
    Result<void> begin(const Assign& assign) override;
    Result<void> go_on(const Assign& assign) override { return begin(assign); }
    Result<void> offer(const Assign& world, const RankSlot& rank, ranks::RankOffer& offer) override;
    void ended(Exited& exited) override { horovod_.ended(exited.place); }
    void notify(const Notify&) override { horovod_.notify(); }
    void add_endpoints(std::set<ranks::Endpoint>& endpoints) const override;
    void add_waits(std::vector<RankWait>& waits) const override;
    void stop() noexcept override;
    asio::awaitable<void> join() override;

    /// The payload of a `reply` frame. Errc: invalid_input
    Result<void> on_reply(std::string_view payload) { return relayed_.on_reply(payload); }

private:
    Result<void> begin_torch(const Assign& assign, TorchStore torch, Fd master);

    Parts parts_;
    stores::RelayedStore relayed_;
    stores::RemoteProcesses remote_processes_;
    std::unique_ptr<stores::LocalStore> local_;  ///< of torch, in this generation
    stores::TcpStoreServer torch_;
    bool torch_listens_ = false;
    stores::HorovodServer horovod_;
};

}  // namespace dtrun::agent
