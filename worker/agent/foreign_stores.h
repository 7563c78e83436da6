#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "rendezvous/modes.h"
#include "rendezvous/rank_messages.h"
#include "worker/stores/distant_user.h"
#include "worker/stores/horovod_server.h"
#include "worker/stores/local_store.h"
#include "worker/stores/relayed_store.h"
#include "worker/stores/tcp_store_server.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace dtrun::agent {

/// Whether rank 0 is one of a host's.
bool has_rank_0(const Assign& assign);

/// The stores that frameworks bring their ranks together with, as one agent serves them.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join().
class ForeignStores {
public:
    /// \param send  takes frames for the job's own store, towards the root
    ForeignStores(asio::any_io_executor executor, stores::RelayedStore::Send send);

    /// Listens on loopback for Horovod, and where `torch_proxy` for torch. Errc: internal
    Result<void> open(bool torch_proxy);
    std::uint16_t horovod_port() const { return horovod_port_; }
    std::uint16_t proxy_port() const { return proxy_port_; }

    /// Before the ranks of a generation start.
    /// \param torch   who serves torch's store in it; proxy only if open() was told so
    /// \param master  bound to master_port, where rank 0 is here and TorchStore::agent serves there;
    ///                unused if it listens there already
    /// Errc: internal
    Result<void> begin(const Assign& assign, TorchStore torch, Fd master);
    bool torch_listens() const { return torch_listens_; }

    /// The payload of a `reply` frame. Errc: invalid_input
    Result<void> on_reply(std::string_view payload) { return relayed_.on_reply(payload); }

    /// Who waits, for what, and for how long.
    std::vector<RankWait> waits() const;

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    Result<void> begin_torch(const Assign& assign, TorchStore torch, Fd master);

    asio::any_io_executor executor_;
    stores::RelayedStore relayed_;
    stores::DistantUsers users_;
    std::unique_ptr<stores::LocalStore> local_;  ///< of torch, in this generation
    stores::TcpStoreServer torch_;
    bool torch_listens_ = false;
    stores::HorovodServer horovod_;
    std::uint16_t horovod_port_ = 0;
    std::uint16_t proxy_port_ = 0;
};

}  // namespace dtrun::agent
