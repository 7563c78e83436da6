#pragma once

#include "base/clock.h"
#include "base/numbered.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/frame.h"

#include <cstdint>
#include <string_view>

namespace dtrun {

/// Names a connection of a rank, an agent or a member; its owner assigns the numbers.
using PeerId = std::uint32_t;

/// Sends an Exchange's frames. Implementations must not call the Exchange.
class Outbox {
public:
    virtual ~Outbox() = default;
    virtual void to_peer(PeerId peer, FrameType type, std::string_view payload) = 0;
    /// As to_peer(), for what tells of no change: it need not wait until changes are on disk.
    virtual void tell_peer(PeerId peer, FrameType type, std::string_view payload) {
        to_peer(peer, type, payload);
    }
    /// As to_peer(), for a payload that ends with many bytes which other peers get as well.
    virtual void share_with_peer(PeerId peer, FrameType type, std::string_view payload,
                                 const SharedBytes& rest) {
        to_peer(peer, type, std::string(payload) + *rest);
    }
    /// Towards the root; never called by a Hub.
    virtual void to_root(FrameType type, std::string_view payload) = 0;
};

/// What a peer is.
enum class PeerKind : std::uint8_t {
    rank,    ///< one rank, or a helper of one
    subtree  ///< an agent, a relay or a member
};

/// The part of a tree's node that deals with requests, fences and progress: a Relay passes
/// them on towards the root, the Hub at the root answers. Pure: no sockets, no clock.
class Exchange {
public:
    virtual ~Exchange() = default;

    virtual void add_peer(PeerId peer, PeerKind kind, Rank rank) = 0;
    /// The connection has ended: requests and fences from behind it wait no longer.
    virtual void remove_peer(PeerId peer) = 0;
    /// A frame of one of the kinds for which is_exchanged() holds.
    /// Errc: invalid_input (the peer is to be cut off)
    virtual Result<void> from_peer(PeerId peer, const FrameView& frame, Deadline now) = 0;

    /// Begins a generation: fences and store of the one before are over.
    /// \param ranks  how many ranks are below this node
    virtual void begin(std::uint64_t generation, std::uint32_t ranks) = 0;
    /// Ends every fence of the current generation, now and to come, because a rank has ended.
    virtual void fail_fences(std::string why) = 0;
};

/// What agents and members send for an Exchange above them, and what it sends to them.
inline constexpr FrameType kExchangedUpwards[] = {FrameType::request, FrameType::gone,
                                                  FrameType::fence, FrameType::unfence,
                                                  FrameType::heartbeat};
inline constexpr FrameType kExchangedDownwards[] = {FrameType::reply, FrameType::fenced,
                                                    FrameType::unfence};
/// What ranks send for it.
inline constexpr FrameType kExchangedByRanks[] = {
    FrameType::request, FrameType::gone, FrameType::fence, FrameType::unfence, FrameType::progress};

/// Whether a frame is dealt with by an Exchange.
constexpr bool is_exchanged(FrameType type) {
    switch (type) {
        case FrameType::request:
        case FrameType::reply:
        case FrameType::gone:
        case FrameType::fence:
        case FrameType::unfence:
        case FrameType::fenced:
        case FrameType::group_fence:
        case FrameType::progress:
        case FrameType::heartbeat:
            return true;
        default:
            return false;
    }
}

/// Progress of ranks, summed.
class ProgressSum {
public:
    void add(const RankProgress& progress);
    void add(const Heartbeat& summary);
    const Heartbeat& summary() const { return summary_; }

private:
    Heartbeat summary_;
};

}  // namespace dtrun
