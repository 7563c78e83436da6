#pragma once

#include "base/numbered.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/exchange/fence_table.h"
#include "rendezvous/exchange/rank_rounds.h"
#include "rendezvous/wire/exchange_messages.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace dtrun {

/// An Exchange below the root: it passes requests to the root and replies back to their clients,
/// and sums fences and progress.
class Relay final : public Exchange {
public:
    explicit Relay(Outbox& outbox) : outbox_(outbox) {}

    void add_peer(PeerId peer, PeerKind kind, Rank rank) override;
    void remove_peer(PeerId peer) override;
    /// A rank that is connected goes on as another one, in another generation.
    void renumber(PeerId peer, Rank rank);
    Result<void> from_peer(PeerId peer, const FrameView& frame, Deadline now) override;
    void begin(std::uint64_t generation, std::uint32_t ranks) override;
    void fail_fences(std::string why) override;
    /// A rank of this node has closed its worker and lives on: fences do not wait long for it.
    void away(Rank rank, std::string why);
    /// It has come again, or its process has made room for another. Does nothing if it was not away.
    void back(Rank rank);

    std::uint64_t generation() const { return fences_.generation(); }
    /// Sends an event to the ranks at this node.
    void announce(const RankEvent& event);
    /// A frame from above, of a kind for which is_exchanged() holds. Errc: invalid_input
    Result<void> from_root(const FrameView& frame);
    /// Summed progress for the next heartbeat to the root.
    Heartbeat summary() const;
    /// The last step that a rank at this node has told of, and when; and how long its last ones took each.
    struct Step {
        std::uint64_t step = 0;
        Deadline at{};
        std::chrono::duration<double> span{};  ///< zero: not known yet
    };
    std::map<Rank, Step> steps() const;
    /// The root can be reached, for the first time or again. Sends unanswered requests and fences again, and keeps
    /// those to come until they are answered.
    void resend();

private:
    using FenceKey = FenceTable::Key;
    struct Visit {
        std::uint64_t round = 0;  ///< for the connection, which counts for itself
        bool is_given_up = false;
    };
    struct Peer {
        void advance(std::uint64_t to, Deadline now);

        PeerKind kind{};
        Rank rank = kNoRank;
        std::unordered_set<std::uint64_t> clients;
        Heartbeat progress;
        Step step{};
        /// The fences at which a rank is over this connection, by name and the rank's round.
        std::map<FenceKey, Visit> at;
    };
    using RequestKey = std::pair<std::uint64_t, std::uint64_t>;  ///< client and id

    Result<void> on_request(PeerId id, Peer& peer, std::string_view payload);
    Result<void> on_gone(Peer& peer, std::string_view payload);
    Result<void> on_fence(PeerId id, Peer& peer, std::string_view payload);
    Result<bool> admit(PeerId id, Peer& peer, Fence& fence);
    bool is_at(Rank rank, const std::string& name, PeerId besides) const;
    Result<void> on_unfence(Peer& peer, std::string_view payload);
    void tell(PeerId id, Peer& peer, Fenced fenced);
    void tell_ranks(const Fenced& fenced);
    void give_up(Unfence unfence);
    void end_long_waits(const Unfence& unfence);
    std::map<Rank, const Peer*> who_progresses() const;
    void forget_requests(std::uint64_t client);

    Outbox& outbox_;
    std::map<PeerId, Peer> peers_;
    std::unordered_map<std::uint64_t, PeerId> client_peers_;
    FenceTable fences_;
    bool fences_failed_ = false;  ///< fences of this generation have failed, and the root was told
    bool resendable_ = false;
    struct Unanswered {
        std::uint64_t number = 0;  ///< in order of arrival
        Bytes payload;
        /// It gives back what its client was given and has not heard of, who has gone since.
        bool takes_back = false;
    };
    std::map<RequestKey, Unanswered> unanswered_;
    std::uint64_t requests_ = 0;  ///< how many have arrived
    /// What clients have said who own things: the root must hear it over each connection.
    std::map<std::uint64_t, Bytes> owners_;
    std::map<FenceKey, Fence> unanswered_fences_;
    std::map<FenceKey, Unfence> unfences_;  ///< one for all fences stays for the generation
    std::map<Rank, Unfence> away_;          ///< ranks of this node, or behind it
    RankRounds rounds_;
};

}  // namespace dtrun
