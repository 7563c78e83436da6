#pragma once

#include "rendezvous/exchange.h"
#include "rendezvous/exchange_messages.h"
#include "rendezvous/fence_table.h"

#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace dtrun {

/// An Exchange below the root: requests go up as they are and replies find their way back; fences
/// and progress are summed.
class Relay final : public Exchange {
public:
    explicit Relay(Outbox& outbox) : outbox_(outbox) {}

    void add_port(PortId port, PortKind kind, std::uint32_t rank) override;
    void remove_port(PortId port) override;
    Result<void> from_port(PortId port, const FrameView& frame, Deadline now) override;
    void begin(std::uint64_t generation, std::uint32_t ranks) override;
    void fail_fences(std::string why) override;

    std::uint64_t generation() const { return fences_.generation(); }
    /// To the ranks at this node.
    void announce(const Event& event);
    /// A frame from above, of a kind for which is_exchanged() holds. Errc: invalid_input
    Result<void> from_root(const FrameView& frame);
    /// What to send with the next heartbeat.
    Heartbeat summary() const;
    /// The connection to the root was made anew: sends again what has had no answer.
    void resend();
    /// Keeps requests and fences until they are answered, for resend().
    void set_resendable() { resendable_ = true; }

private:
    struct Port {
        PortKind kind{};
        std::uint32_t rank = kNoRank;
        std::unordered_set<std::uint64_t> clients;
        Heartbeat progress;
    };
    using RequestKey = std::pair<std::uint64_t, std::uint64_t>;  ///< client and id

    Result<void> on_request(PortId id, Port& port, std::string_view payload);
    Result<void> on_fence(PortId id, const Port& port, std::string_view payload);
    void tell_ranks(const Fenced& fenced);
    void give_up(Unfence unfence);
    void forget_requests(std::uint64_t client);

    Outbox& outbox_;
    std::map<PortId, Port> ports_;
    std::unordered_map<std::uint64_t, PortId> client_ports_;
    FenceTable fences_;
    bool fences_failed_ = false;  ///< in this generation, and the root knows
    bool resendable_ = false;
    struct Unanswered {
        std::uint64_t number = 0;  ///< in order of arrival
        Bytes payload;
    };
    std::map<RequestKey, Unanswered> unanswered_;
    std::uint64_t requests_ = 0;                             ///< that have arrived
    using FenceKey = std::pair<std::string, std::uint64_t>;  ///< name and round
    std::map<FenceKey, Fence> unanswered_fences_;
    std::map<FenceKey, Unfence> unfences_;  ///< that of all fences stays for the generation
};

}  // namespace dtrun
