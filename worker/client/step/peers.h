#pragma once

#include "base/result.h"
#include "rendezvous/exchange/exchange.h"
#include "worker/client/connect/private_fd.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/step/peer.h"
#include "worker/client/step/poll.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace dtrun::embedded {

/// The connections of a step's server, and when each is read and written. What is sent waits for
/// flush_all(), so that nobody is lost while he is spoken to.
///
/// A peer that does not read what it is sent is not read from, until it has read most of it: so what
/// is kept for it has an end, and it is not lost for being slow.
///
/// Thread: the server's. Lifetime: `poll` and `handler` outlive it.
class StepPeers {
public:
    class Handler {
    public:
        /// Deals with what was received, while the peer may be heard.
        /// Errc: it is to be cut off, after what it has been sent
        virtual Result<void> on_received(StepPeer& peer) = 0;
        /// Its connection has ended, and it is none of the peers any more.
        virtual void on_lost(const StepPeer& peer) = 0;

    protected:
        ~Handler() = default;
    };
    using Peers = std::unordered_map<PeerId, std::unique_ptr<StepPeer>>;

    StepPeers(StepPoll& poll, Handler& handler);

    const Peers& all() const { return peers_; }
    /// Each peer gets a larger id than all before it.
    StepPeer& add(PrivateFd socket);
    StepPeer* find(PeerId id);  ///< nullptr if there is none
    void lose(PeerId id);
    void clear() { peers_.clear(); }  ///< and nobody is told

    /// \param asked  the answer to a request, of which there are as many as we read
    void send(StepPeer& peer, std::shared_ptr<const Bytes> bytes, bool asked);
    /// From now on each connection is shut down once everything queued for it has been sent.
    void finish() { finishing_ = true; }

    /// Something has happened to a peer, as epoll says it; nothing if there is none any more.
    void on_ready(PeerId id, std::uint32_t events);
    void flush_all();
    /// Looks after those that are full, at next().
    void hear_the_full();
    Moment next() const { return full_due_.empty() ? Moment::max() : full_due_.front().due; }

private:
    /// A peer with so much unsent that we have stopped reading from it.
    struct Full {
        Moment due;  ///< then it is looked at
        PeerId peer = 0;
        std::uint64_t sent_bytes = 0;  ///< of it, up to here
    };

    void handle_received(StepPeer& peer);
    bool flush(StepPeer& peer);

    StepPoll& poll_;
    Handler& handler_;
    Peers peers_;
    PeerId last_peer_ = 0;
    std::vector<PeerId> unflushed_;
    std::vector<PeerId> resumed_;  ///< heard again: what was received before is to be handled
    std::deque<Full> full_due_;
    bool finishing_ = false;
    std::vector<char> scratch_;
};

}  // namespace dtrun::embedded
