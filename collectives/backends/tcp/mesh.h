#pragma once

#include "base/result.h"
#include "collectives/backends/tcp/abort_signal.h"
#include "collectives/backends/tcp/address_book.h"
#include "collectives/backends/tcp/handshake.h"
#include "collectives/backends/tcp/peer_listener.h"
#include "collectives/backends/tcp/sealed_stream.h"
#include "collectives/backends/tcp/socket.h"

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::collectives::over_tcp {

/// Ranks to which every rank has a connection from the start: all in a small group, else those at
/// distances of 1, 2, 4, ... to both sides, which rings and trees need.
std::vector<std::uint32_t> neighbours(std::uint32_t rank, std::uint32_t size);
/// Groups up to this size have connections between all ranks.
inline constexpr std::uint32_t kMeshRanksMax = 8;

/// Which of two connections can go on.
struct Ready {
    bool send = false;
    bool receive = false;
};

/// Connections of one kind between this rank and others, made on demand: O(n log n) in all.
///
/// Both ends must ask for a connection, in calls that belong together. The lower rank connects, the higher
/// one accepts, and each proves to the other who it is.
///
/// Thread: one at a time; shut() from any.
class Mesh {
public:
    /// \param crowded      there are more ranks on this host than processors: nobody waits in loops
    /// \param interrupted  see GroupSpec
    Mesh(AddressBook& address_book, PeerListener& listener, AbortSignal& abort_signal,
         ConnectionKind kind, bool crowded, std::function<bool()> interrupted);

    /// Connects to those of `peers` that are not connected, and waits for them. Errc: timed_out (names who
    /// has not come), closed, cancelled, invalid_input
    Result<void> connect(std::span<const std::uint32_t> peers);
    /// The same without waiting for the peer: goes on in advance().
    Result<void> begin(std::uint32_t peer);
    /// Lets in who has come. Once before advance() of any number of peers: whoever comes in between is not seen by
    /// those that have had their turn, and nobody would wait for him.
    void let_in() { peers_.advance(address_book_.rank(), address_book_.terms()); }
    Result<void> advance(std::uint32_t peer);
    bool connected(std::uint32_t peer) const { return links_[peer].state == Link::State::open; }
    std::size_t connections() const;
    const Socket& socket(std::uint32_t peer) const { return links_[peer].socket; }

    /// What can be sent, or has come, at once; 0: one has to wait. Errc: closed
    Result<std::size_t> send(std::uint32_t peer, std::span<const iovec> parts);
    Result<std::size_t> receive(std::uint32_t peer, void* data, std::size_t bytes);

    /// What comes from a peer, and what goes to it, as long as that takes. Errc: closed, cancelled
    Result<std::size_t> read(std::uint32_t peer, void* data, std::size_t bytes);
    /// What has come already, up to so much.
    Result<std::size_t> read_some(std::uint32_t peer, void* data, std::size_t bytes);
    Result<void> write(std::uint32_t peer, std::span<const iovec> parts);
    /// Waits until one of two connections can go on.
    Result<Ready> wait_for(std::uint32_t send_to, std::uint32_t receive_from);
    /// Waits until the group has ended, here or at the peer.
    Error wait_for_end(std::uint32_t peer);

    /// Adds what advance() of a peer waits for.
    void add_to(std::vector<pollfd>& waits, std::uint32_t peer) const;
    /// Waits for one of these, or for the abort signal, which is an error. \param ms  -1: as long as it takes
    Result<void> wait(std::vector<pollfd>& waits, int ms = -1);

    /// Interrupts calls that use or await a connection, and prevents new ones. The peers notice that.
    void shut() noexcept;
    /// Tells that a connection has failed; broken() returns the first one.
    void broke(std::uint32_t peer);
    std::optional<std::uint32_t> broken() const { return broken_; }
    AddressBook& address_book() const { return address_book_; }
    /// How often one looks for what has come before one waits.
    int tries() const { return tries_; }

private:
    struct Link {
        enum class State { none, pauses, connects, greets, accepts, open };
        State state = State::none;
        Socket socket{};
        std::chrono::steady_clock::time_point again{};  ///< when a pause is over
        std::optional<RankHandshake> asking{};          ///< while it greets
        std::unique_ptr<SealedStream> sealed{};         ///< if it is encrypted
        /// What has come and was not asked for yet: small messages take one system call.
        std::unique_ptr<std::byte[]> ahead{};
        std::size_t ahead_begin = 0;
        std::size_t ahead_end = 0;
    };
    bool has_ahead(std::uint32_t peer) const {
        const Link& link = links_[peer];
        return link.ahead_begin < link.ahead_end || (link.sealed && link.sealed->has_ahead());
    }
    Result<void> dial(std::uint32_t peer);
    Result<void> greet(std::uint32_t peer);
    Result<void> introduce(std::uint32_t peer);
    Result<void> try_again(std::uint32_t peer);
    Result<void> accept(std::uint32_t peer);
    Result<void> opened(std::uint32_t peer, std::optional<Sealing> sealing);
    std::optional<int> until_next_try() const;
    Result<void> keep(std::uint32_t peer, Socket socket, Link::State state);
    Result<void> wait_to(std::uint32_t peer, short event);
    Error lost(std::uint32_t peer, const Error& why);

    AddressBook& address_book_;
    PeerListener& peers_;
    AbortSignal& abort_signal_;
    const ConnectionKind kind_;
    const int tries_;  ///< to read before a wait
    const std::function<bool()> interrupted_;
    std::mutex mutex_;  ///< guards sockets against shut()
    bool shut_ = false;
    std::optional<std::uint32_t> broken_;
    std::size_t pauses_ = 0;  ///< links that wait to be tried again
    std::vector<Link> links_;
};

}  // namespace dtrun::collectives::over_tcp
