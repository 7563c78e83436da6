#pragma once

#include "base/loop/accept.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/hub_timer.h"
#include "rendezvous/links/link.h"

#include <map>
#include <memory>
#include <string>

namespace dtrun {

/// A Unix socket at the root of a job's tree, by which programs on its machine ask the store without an agent in
/// between: one process less to wake for each request. Whatever else an agent does for its ranks, fences and places, is
/// not to be had here. Who connects must be of our user, as at an agent's socket.
///
/// It stands between a Hub and its Outbox, as it has peers of its own.
///
/// Thread: the executor's. Lifetime: `others` outlives it, as do the hub and the timer that open() is given; the owner
/// awaits join() before destruction.
class LocalStoreServer final : public Outbox {
public:
    /// Of at most so many programs. Further ones are closed, and ask their agents as before.
    static constexpr std::size_t kConnectionsMax = 64;
    /// Peers from here on are its own: nobody else may give these numbers.
    static constexpr PeerId kFirstPeer = PeerId{1} << 31;

    /// \param others  sends to all other peers
    LocalStoreServer(asio::any_io_executor executor, Outbox& others);

    /// \param hub  whose Outbox this is
    /// \return the socket's name, as Welcome::store_socket. Errc: internal
    Result<std::string> open(Hub& hub, HubTimer& timer);

    void to_peer(PeerId peer, FrameType type, std::string_view payload) override;
    void tell_peer(PeerId peer, FrameType type, std::string_view payload) override;
    void share_with_peer(PeerId peer, FrameType type, std::string_view payload,
                         const SharedBytes& rest) override;
    void to_root(FrameType type, std::string_view payload) override {
        others_.to_root(type, payload);
    }

    asio::awaitable<void> join();  ///< closes everything

private:
    struct Program {
        explicit Program(Unix::socket socket) : link(std::move(socket)) {}
        Link link;
        bool greeted = false;  ///< it has said hello, and is a peer of the hub
    };

    asio::awaitable<void> accept();
    asio::awaitable<void> serve(PeerId id);
    Result<void> heard(PeerId id, const FrameView& frame);

    asio::any_io_executor executor_;
    Outbox& others_;
    Hub* hub_ = nullptr;
    HubTimer* timer_ = nullptr;
    Unix::acceptor acceptor_;
    std::map<PeerId, std::unique_ptr<Program>> programs_;
    PeerId last_peer_ = kFirstPeer;
    TaskGroup tasks_;
};

}  // namespace dtrun
