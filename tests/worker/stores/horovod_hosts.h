#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/hub_timer.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/stores/horovod_server.h"
#include "worker/stores/relayed_store.h"

#include <memory>
#include <vector>

namespace dtrun {

using namespace stores;

/// Hosts in one process, each with Horovod's server, in front of one hub: what an agent has of it,
/// without the network between.
///
/// Thread: the executor's, which must not run any more when this is destroyed.
class HorovodHosts : private Outbox {
public:
    HorovodHosts(asio::io_context& io, std::vector<std::uint32_t> ranks_of_hosts)
        : io_(io), hub_(*this, {}), timer_(io.get_executor(), hub_), sizes_(ranks_of_hosts) {
        for (PeerId host = 0; host < sizes_.size(); ++host) {
            hub_.add_peer(host, PeerKind::subtree, kNoRank);
            stores_.push_back(std::make_unique<RelayedStore>(
                io.get_executor(), [this, host](FrameType type, std::string_view payload) {
                    const FrameView frame{type, payload};
                    const auto taken = hub_.from_peer(host, frame, Clock::now());
                    if (!taken) failed_ = true;
                    timer_.look();
                }));
            servers_.push_back(std::make_unique<HorovodServer>(io.get_executor(), desk_));
        }
    }

    /// Of each host, in order of ranks; block by block.
    std::vector<std::vector<RankSlot>> slots() const {
        std::vector<std::vector<RankSlot>> all;
        std::uint32_t rank = 0;
        for (const std::uint32_t size : sizes_) {
            auto& slots = all.emplace_back();
            for (std::uint32_t local = 0; local < size; ++local)
                slots.push_back({Rank{rank++}, local, 0, 0, local});
        }
        return all;
    }

    void begin(std::uint64_t generation) {
        std::uint32_t world = 0;
        for (const std::uint32_t size : sizes_) world += size;
        hub_.begin(generation, world);
        const auto ranks = slots();
        for (std::size_t host = 0; host < sizes_.size(); ++host) {
            stores_[host]->begin(generation);
            Assign assign;
            assign.generation = generation;
            assign.world_size = world;
            assign.ranks = ranks[host];
            servers_[host]->begin(*stores_[host], assign);
        }
    }

    HorovodServer& server(std::size_t host) { return *servers_[host]; }
    RelayedStore& store(std::size_t host) { return *stores_[host]; }
    std::size_t hosts() const { return sizes_.size(); }
    const Hub& hub() const { return hub_; }
    bool failed() const { return failed_; }  ///< the hub did not accept a frame

    void stop() {
        for (const auto& server : servers_) server->stop();
    }
    asio::awaitable<void> join() {
        for (const auto& server : servers_) co_await server->join();
    }

private:
    /// Not from within the hub's call.
    void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
        asio::post(io_, [this, peer, type, bytes = Bytes(payload)] {
            if (type == FrameType::reply && !stores_[peer]->on_reply(bytes)) failed_ = true;
        });
    }
    void to_root(FrameType, std::string_view) override {}

    asio::io_context& io_;
    Hub hub_;
    HubTimer timer_;
    std::vector<std::uint32_t> sizes_;
    RejoinQueue desk_{[](const RejoinStatus&) {}};
    std::vector<std::unique_ptr<RelayedStore>> stores_;
    std::vector<std::unique_ptr<HorovodServer>> servers_;
    bool failed_ = false;
};

}  // namespace dtrun
