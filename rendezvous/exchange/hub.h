#pragma once

#include "base/numbered.h"
#include "rendezvous/exchange/exchange.h"
#include "rendezvous/exchange/fence_table.h"
#include "rendezvous/exchange/group_fences.h"
#include "rendezvous/exchange/store.h"
#include "rendezvous/wire/exchange_messages.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace dtrun {

/// Records what a Hub needs to go on after its process was killed. Each call precedes the frames
/// that tell of the change.
class HubJournal : public StoreJournal {
public:
    /// The answer of a request that changed something.
    virtual void answered(std::uint64_t client, std::uint64_t id, std::string_view reply) = 0;
    /// This answer, or with answers_forgotten() all up to and including `id`, is no longer needed.
    virtual void answer_forgotten(std::uint64_t client, std::uint64_t id) = 0;
    virtual void answers_forgotten(std::uint64_t client, std::uint64_t id) = 0;
    /// A fence has been completed; only the last completed round of a name is kept.
    virtual void fence_completed(const Fenced& fenced) = 0;
    virtual void completion_forgotten(std::string_view name) = 0;
    /// A fence has failed; without a name: all fences of the generation.
    virtual void fence_failed(const Fenced& fenced) = 0;
    virtual void failure_forgotten(std::string_view name, std::uint64_t round) = 0;
    virtual void group_ended(const GroupFences::Key& key, const GroupFences::End& end) = 0;
    virtual void group_forgotten(const GroupFences::Key& key) = 0;
    /// A generation has begun; keys, answers and fences of the one before are gone.
    virtual void began(std::uint64_t generation, std::uint64_t revision) = 0;
};

struct HubOptions {
    /// Whether clients may reconnect: answers and outcomes of fences are kept then, so that
    /// repeated requests are not executed twice.
    bool reconnects = false;
    Store::Limits limits;
    /// The store's revisions are larger than this.
    std::uint64_t revision = 0;
    /// How long an owner may be without a connection, with `reconnects`.
    std::chrono::milliseconds owner_limit{3'000};
    /// Answers `status`; nullptr: refused.
    std::function<std::string()> status;
    /// How an operation with so many bytes that changes something is refused; nothing: it is not.
    /// nullptr: none is.
    std::function<std::optional<StoreReply>(Op op, std::size_t bytes)> refusal;
    /// Answers `drop`, and sees to it that the job is dropped; nullptr: refused.
    std::function<StoreReply()> drop;
};

/// The Exchange at the root: it holds the job's store and completes fences.
///
/// An answered operation has been executed exactly once. With `reconnects` a client may repeat a
/// request: its answers are kept until `behind` passes them, or there are 64 newer ones, which is
/// how many requests a client may have pending. They are dropped when the client says that it is
/// gone, or has been disconnected for the return limit. Requests that arrive over a connection
/// which the client has replaced are ignored.
///
/// A client that has said `own` is an owner, as long as it is connected. When it has said `gone`, was silent for
/// too long, or has lost its connection and not said `own` over another within the owner limit, what it owns in
/// the store is let go in one step; if it comes later it begins with nothing.
class Hub final : public Exchange, private GroupFences::Events {
public:
    /// \param journal  nullptr: nothing is kept
    Hub(Outbox& outbox, HubOptions options, HubJournal* journal = nullptr);

    void add_peer(PeerId peer, PeerKind kind, Rank rank) override;
    /// A process has come over this connection that may take part in fences of another launcher's ranks.
    void set_group_client(PeerId peer, std::uint64_t client);
    /// Sets how long after this peer has gone its clients may reconnect over another; default 60 s.
    void set_return_limit(PeerId peer, std::chrono::milliseconds limit);
    /// With `reconnects`, remove_peer(peer, now) must be used instead.
    void remove_peer(PeerId peer) override { remove_peer(peer, Deadline{}); }
    /// \param is_lost  it has been silent for so long that its owners are not waited for
    void remove_peer(PeerId peer, Deadline now, bool is_lost = false);
    Result<void> from_peer(PeerId peer, const FrameView& frame, Deadline now) override;
    void begin(std::uint64_t generation, std::uint32_t ranks) override;
    void fail_fences(std::string why) override;

    /// Answers requests whose time has passed, forgets clients and owners that have not come back, and fails
    /// fences that have waited long for a rank that is away; to be called at next_deadline().
    void expire(Deadline now);
    /// This process did not run in between, so that nobody could come back: owners have that time besides.
    void stood_still(Deadline from, Deadline until);
    Deadline next_deadline() const;
    /// Answers all waiting requests of the store with `stale`.
    void end_waits();

    std::uint64_t generation() const { return fences_.generation(); }
    const Store& store() const { return *store_; }
    void forget_history() { store_->forget_history(); }
    /// Size of kept answers; it counts against the store's limit.
    std::size_t answer_bytes() const { return answer_bytes_; }
    Heartbeat progress() const;

    // Restore a journal's records, in the order of its calls, before the first peer is added.
    void restore_generation(std::uint64_t generation, std::uint32_t ranks);
    Store& restore_store() { return *store_; }
    void restore_answer(std::uint64_t client, std::uint64_t id, Bytes reply, Deadline now);
    /// All of the store is there. Those who own something have a while to come back.
    void end_restore(Deadline now);
    void restore_fence(Fenced fenced);
    void restore_group(const GroupFences::Key& key, GroupFences::End end);

private:
    struct Peer {
        PeerKind kind{};
        Rank rank = kNoRank;
        Heartbeat progress;
        std::chrono::milliseconds return_limit;
        std::unordered_set<std::uint64_t> clients;
    };
    struct Client {
        std::optional<PeerId> peer;  ///< the last over which it has sent a request
        bool moved = false;          ///< it has come over another peer before
        bool gone = false;  ///< it has sent `gone`; only late copies of requests can arrive
        std::optional<Deadline> away_until;            ///< when it is forgotten
        std::map<std::uint64_t, Op> waiting;           ///< by id
        std::map<std::uint64_t, SharedBytes> answers;  ///< by id; payloads of replies
        std::deque<std::uint64_t> answered;            ///< ids of `answers`, oldest answer first
    };
    using Clients = std::unordered_map<std::uint64_t, Client>;
    struct Owner {
        std::optional<PeerId> peer;  ///< over which it is connected
        Deadline away_since{};       ///< without one
        Deadline gone_at{};
    };
    /// Results, and ends of fences, of at least this size are shared by all peers that get them.
    static constexpr std::size_t kSharedBytesMin = 16u << 10;
    struct Completed {
        Fenced fenced;
        std::uint64_t number = 0;  ///< counts completions, for completed_order_
    };

    void make_store();
    Result<void> on_request(PeerId peer, std::string_view payload, Deadline now);
    Result<void> on_gone(PeerId peer, std::string_view payload, Deadline now);
    bool has_asked(PeerId peer, const RequestView& request);
    void move_to(PeerId peer, std::uint64_t id, Client& client);
    StoreReply own(PeerId peer, std::uint64_t client);
    std::string owner_refusal(PeerId peer, const StoreRequest& request) const;
    bool was_taken(const RequestView& request, std::string_view reply) const;
    void cancel(PeerId peer, const RequestHeader& header, PackReader& in);
    void set_owner_away(std::uint64_t id, Deadline since, Deadline gone_at);
    void owner_gone(std::uint64_t id);
    StoreReply status_reply() const;
    StoreReply drop_reply() const;
    std::optional<StoreReply> refusal(Op op, std::size_t bytes) const;
    void tell(PeerId peer, const RequestHeader& header, const StoreReply& reply);
    void answer(PeerId peer, const RequestHeader& header, StoreReply reply);
    void send_results(PeerId peer, std::string_view reply_header, Bytes results);
    void send_kept(PeerId peer, const SharedBytes& payload);
    void keep_answer(std::uint64_t client, std::uint64_t id, SharedBytes payload);
    void answer_late(Store::Token token, const StoreReply& reply);
    void forget_answer(Client& client, std::uint64_t id);
    void forget_answers(std::uint64_t id, Client& client);
    void set_away(std::uint64_t id, Client& client, std::optional<Deadline> until);
    void forget_client(std::uint64_t id);
    Result<void> on_fence(PeerId peer, std::string_view payload);
    Result<void> on_unfence(PeerId peer, std::string_view payload, Deadline now);
    void on_absent(PeerId peer, const Unfence& unfence, Deadline now);
    void end_long_waits(Deadline now);
    void end_fence(const Fenced& fenced);
    void remember_completed(const Fenced& fenced);
    bool completed(const std::string& name, std::uint64_t round) const;
    void group_told(PeerId peer, const Fenced& fenced) override;
    void group_ended(const GroupFences::Key& key, const GroupFences::End& end) override;
    void group_forgotten(const GroupFences::Key& key) override;

    Outbox& outbox_;
    HubOptions options_;
    HubJournal* journal_;
    std::map<PeerId, Peer> peers_;
    std::unique_ptr<Store> store_;
    Clients clients_;
    std::set<std::pair<Deadline, std::uint64_t>> away_;         ///< clients by away_until
    std::map<std::uint64_t, Owner> owners_;                     ///< by client
    std::set<std::pair<Deadline, std::uint64_t>> owners_away_;  ///< by gone_at
    std::size_t answer_bytes_ = 0;
    std::weak_ptr<const Bytes> last_results_;  ///< large ones that are still being sent
    FenceTable fences_;
    bool fences_failed_ = false;  ///< all fences of this generation have failed
    struct Absent {
        PeerId peer{};  ///< who has said so
        std::string why;
    };
    std::map<Rank, Absent> absent_;        ///< ranks without a worker, who may open another
    std::optional<Deadline> absent_look_;  ///< when fences are looked at that wait for one
    /// Last completed round of each name, without entries unless `reconnects`; limited in number
    /// and size.
    std::map<std::string, Completed> completed_;
    std::map<std::uint64_t, std::string> completed_order_;  ///< names by number, oldest first
    std::size_t completed_bytes_ = 0;
    std::uint64_t completions_ = 0;
    GroupFences group_fences_;
};

}  // namespace dtrun
