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

/// By which programs ask the store at the root of a job's tree without an agent in between: one process less to wake for
/// each request. Whatever else an agent does for its ranks, fences and places, is not to be had here. Programs of this
/// machine come by a Unix socket, and must be of our user, as at an agent's; others over TCP, with a StoreKey.
///
/// It stands between a Hub and its Outbox, as it has peers of its own.
///
/// Thread: the executor's. Lifetime: `others` outlives it, as do the hub and the timer of use(), which comes first; the
/// owner awaits join() before destruction.
class DirectStoreServer final : public Outbox {
public:
    /// Of at most so many programs. Further ones are closed, and ask their agents as before.
    static constexpr std::size_t kConnectionsMax = 64;
    /// Of these, from other machines. Where many ask, their agents' frames for many are cheaper for us than one from each.
    static constexpr std::size_t kRemoteMax = 16;
    /// Peers from here on are its own: nobody else may give these numbers.
    static constexpr PeerId kFirstPeer = PeerId{1} << 31;

    /// \param others  sends to all other peers
    DirectStoreServer(asio::any_io_executor executor, Outbox& others);

    /// \param hub  whose Outbox this is
    void use(Hub& hub, HubTimer& timer);
    /// Listens for programs of this machine. \return the socket's name, as Welcome::store_socket. Errc: internal
    Result<std::string> open();
    /// A program of another machine has proved to have our key.
    void admit(Connection connection);

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
        explicit Program(Connection connection) : link(std::move(connection)), is_remote(true) {}
        Link link;
        bool is_remote = false;
        bool greeted = false;  ///< it has said hello, and is a peer of the hub
    };

    asio::awaitable<void> accept();
    void start(std::unique_ptr<Program> program);
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
