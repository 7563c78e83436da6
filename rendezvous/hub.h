#pragma once

#include "rendezvous/exchange.h"
#include "rendezvous/fence_table.h"
#include "rendezvous/store.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace dtrun {

/// What a Hub must remember to go on after its process was killed. Calls come in order, each before
/// anybody is told of what it records.
class HubJournal : public StoreJournal {
public:
    /// The answer of a request that changed something.
    virtual void answered(std::uint64_t client, std::uint64_t id, std::string_view reply) = 0;
    /// Answers up to and including `id` reached the client.
    virtual void answers_seen(std::uint64_t client, std::uint64_t id) = 0;
    /// The last round of a fence of this name has been completed.
    virtual void fence_completed(const Fenced& fenced) = 0;
    virtual void completion_forgotten(std::string_view name) = 0;
    /// A fence has failed; without a name: all of the generation have.
    virtual void fence_failed(const Fenced& fenced) = 0;
    virtual void failure_forgotten(std::string_view name, std::uint64_t round) = 0;
    /// A generation has begun; keys, answers and fences of the one before are gone.
    virtual void began(std::uint64_t generation) = 0;
};

struct HubOptions {
    /// Connections may break and be made anew: answers and the ends of fences are kept so that what is
    /// sent again is not done again.
    bool reconnects = false;
    Store::Limits limits;
    /// Answers `status`; nullptr: refused.
    std::function<std::string()> status;
};

/// The Exchange at the root: the job's store, and where fences are complete.
class Hub final : public Exchange {
public:
    /// \param journal  nullptr: nothing is kept
    Hub(Outbox& outbox, HubOptions options, HubJournal* journal = nullptr);

    void add_port(PortId port, PortKind kind, std::uint32_t rank) override;
    void remove_port(PortId port) override;
    Result<void> from_port(PortId port, const FrameView& frame, Deadline now) override;
    void begin(std::uint64_t generation, std::uint32_t ranks) override;
    void fail_fences(std::string why) override;

    /// Answers requests whose time has passed; to be called at next_deadline().
    void expire(Deadline now) { store_->expire(now); }
    Deadline next_deadline() const { return store_->next_deadline(); }

    std::uint64_t generation() const { return fences_.generation(); }
    const Store& store() const { return *store_; }
    Heartbeat progress() const;

    // What a journal had kept, before the first port is added; in the order in which it was told.
    void restore_generation(std::uint64_t generation, std::uint32_t ranks);
    Store& restore_store() { return *store_; }
    void restore_answer(std::uint64_t client, std::uint64_t id, Bytes reply);
    void restore_fence(Fenced fenced);

private:
    struct Port {
        PortKind kind{};
        std::uint32_t rank = kNoRank;
        Heartbeat progress;
    };
    struct Waiting {
        PortId port = 0;
        std::map<std::uint64_t, Op> ids;
    };
    struct Completed {
        Fenced fenced;
        std::uint64_t number = 0;  ///< of completions
    };

    void make_store();
    Result<void> on_request(PortId port, std::string_view payload, Deadline now);
    StoreReply status_reply() const;
    void answer(PortId port, const RequestHeader& header, const StoreReply& reply);
    void answer_late(Store::Token token, const StoreReply& reply);
    const Bytes* remembered(const RequestHeader& header);
    void stop_waiting(std::uint64_t client, std::uint64_t id);
    Result<void> on_fence(PortId port, std::string_view payload);
    Result<void> on_unfence(std::string_view payload);
    void end_fence(const Fenced& fenced);
    void remember_completed(const Fenced& fenced);
    bool completed(const std::string& name, std::uint64_t round) const;

    Outbox& outbox_;
    HubOptions options_;
    HubJournal* journal_;
    std::map<PortId, Port> ports_;
    std::unique_ptr<Store> store_;
    std::unordered_map<std::uint64_t, Waiting> waiting_;                         ///< by client
    std::unordered_map<std::uint64_t, std::map<std::uint64_t, Bytes>> answers_;  ///< client, id
    FenceTable fences_;
    bool fences_failed_ = false;  ///< all of this generation
    /// By name, the last round; without entries unless connections may be made anew. As many as fit.
    std::map<std::string, Completed> completed_;
    std::map<std::uint64_t, std::string> completed_order_;  ///< names by number, oldest first
    std::size_t completed_bytes_ = 0;
    std::uint64_t completions_ = 0;
};

}  // namespace dtrun
