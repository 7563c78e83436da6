#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "base/throttle.h"
#include "rendezvous/exchange/relay.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/links/link.h"
#include "rendezvous/links/server.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/router.h"

#include <sys/types.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::agent {

/// Everybody who is connected to an agent from below, the ranks of its host and the agents behind it
/// in the tree, and the Relay between these and the head.
///
/// Thread: the executor's. Lifetime: `head` outlives it; the owner calls stop() and awaits join().
class Connections final : private Outbox {
public:
    /// Who hears of ranks that come and go.
    struct ForRanks {
        /// What one that says hello is answered: nothing, if welcome() will be called later. An error
        /// refuses it.
        std::function<Result<std::optional<Welcome>>(PeerId, const Hello&)> greet;
        std::function<void(PeerId)> left;  ///< its connection has ended
    };

    /// \param from_head    brings what the head says
    /// \param agents_gone  called when the last agent behind this one has gone
    Connections(asio::any_io_executor executor, Link& head, Router<>& from_head, ForRanks for_ranks,
                std::function<void()> agents_gone);

    /// Waits for ranks on a Unix socket.
    /// \return the value of DTRUN_SOCKET. Errc: internal
    Result<std::string> open_for_ranks();
    /// Opens a connection for the agent itself. \return the function that sends frames over it
    /// \param kind  rank: for the store only, like a helper of a rank; subtree: also for fences
    /// \param take  takes what comes back: replies, and the ends of fences
    std::function<void(FrameType, std::string_view)> open_for_agent(
        PeerKind kind, std::function<Result<void>(const FrameView&)> take);
    /// Waits for agents of other hosts. \return the port
    /// \param addresses  of this machine, numeric, at which; none: all that it has
    Result<std::uint16_t> open_for_agents(const Credentials& credentials,
                                          const std::vector<std::string>& addresses = {});

    /// Gives a rank that has said hello its place, or one that has a place another one.
    void welcome(PeerId peer, const Welcome& welcome);
    /// Does nothing if it has gone.
    void send(PeerId peer, Bytes frame);
    /// Sends a small frame with descriptors, to a peer to which nothing was sent before.
    /// \return whether it was sent
    bool send_descriptors(PeerId peer, std::string_view frame, std::span<const int> descriptors);
    /// kNoRank for one that is none's, or has gone.
    Rank rank_of(PeerId peer) const;

    Relay& relay() { return relay_; }
    /// Who receives what ranks say once they have said hello.
    Router<PeerId>& from_ranks() { return from_ranks_; }
    /// A heartbeat to the head.
    /// \param busy  we may not get a processor for seconds
    void say_alive(bool busy);
    /// Heartbeats to the agents behind this one; those that are silent are lost.
    /// \return whether one of them should have answered the last heartbeat by now
    bool beat(const FailureDetector& detector);
    std::size_t agents() const { return agents_.size(); }  ///< behind this one

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    struct Peer {
        Peer(Unix::socket socket, PeerId number) : link(std::move(socket)), id(number) {}
        Peer(Connection connection, PeerId number) : link(std::move(connection)), id(number) {}
        Link link;
        int socket = -1;  ///< the link's; of a rank
        PeerId id = 0;
        Rank rank = kNoRank;         ///< once it has been welcomed as one
        pid_t pid = 0;               ///< of a rank's process
        std::optional<HostId> host;  ///< of an agent that has joined
        bool is_agent = false;
        bool greeted = false;  ///< its first frame has come
        bool placed = false;   ///< it was welcomed
    };

    using Ended = asio::posix::stream_descriptor;  ///< readable when a process has ended

    void to_peer(PeerId peer, FrameType type, std::string_view payload) override;
    void to_root(FrameType type, std::string_view payload) override;
    void to_own_peer(PeerId peer, FrameType type, std::string_view payload);

    asio::awaitable<void> accept_ranks();
    void turned_away(const std::string& text);
    asio::awaitable<void> watch_finalized(Rank rank, pid_t pid);
    bool is_connected(Rank rank) const;
    void back(Rank rank);
    void start(std::unique_ptr<Peer> peer);
    asio::awaitable<void> run_peer(PeerId id);
    Result<void> on_frame(Peer& peer, const FrameView& frame);
    Result<void> first_frame(Peer& peer, const FrameView& frame);
    Result<void> from_agent(Peer& peer, const FrameView& frame);
    Result<void> pass_down(std::string_view relayed);
    void agent_lost(Peer& peer, const std::string& why);
    void forget_agent(Peer& peer);

    asio::any_io_executor executor_;
    Link& head_;
    ForRanks for_ranks_;
    std::function<void()> agents_gone_;
    Relay relay_;
    Router<PeerId> from_ranks_;
    Unix::acceptor rank_acceptor_;
    std::unique_ptr<Server> agent_server_;
    std::map<PeerId, std::unique_ptr<Peer>> peers_;
    std::map<HostId, PeerId> agents_;  ///< by host
    PeerId last_peer_ = 0;
    Throttle turned_away_;  ///< processes that were refused
    std::map<PeerId, std::function<Result<void>(const FrameView&)>> own_peers_;  ///< the agent's
    std::map<Rank, Ended>
        away_;  ///< ranks that have finalized their workers, whose processes live on
    TaskGroup tasks_;
    TaskGroup watches_;  ///< of ranks that have finalized their workers
};

}  // namespace dtrun::agent
