#pragma once

#include "rendezvous/wire/frame.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

namespace dtrun::stores {

/// The store at the root of the job's tree, asked over whatever leads there.
///
/// Thread: one.
class RelayedStore final : public JobStore {
public:
    /// \param send  takes a frame's type and payload, towards the root
    using Send = std::function<void(FrameType, std::string_view)>;
    explicit RelayedStore(Send send) : send_(std::move(send)) {}

    Ticket ask(const StoreRequest& request, Answer answer) override;
    void forget(Ticket ticket) override;

    /// The payload of a `reply` frame. Errc: invalid_input
    Result<void> on_reply(std::string_view payload);
    /// From here on requests are for this generation; those of the one before are forgotten.
    void begin(std::uint64_t generation);

private:
    /// Has a limited number of requests that change something under way (docs/PROTOCOL.md), so there
    /// are as many clients as it takes.
    struct Client {
        std::uint64_t last_id = 0;
        std::map<std::uint64_t, Ticket> unanswered;  ///< by id
        std::size_t changing = 0;                    ///< of these
    };
    struct Asked {
        std::uint64_t client = 0;
        std::uint64_t id = 0;
        Op op{};
        Answer answer;  ///< empty: forgotten
    };

    Client& client_for(Op op, std::uint64_t& client_id);

    Send send_;
    std::uint64_t generation_ = 0;
    std::map<std::uint64_t, Client> clients_;  ///< by the client's number
    std::unordered_map<Ticket, Asked> asked_;
    Ticket last_ticket_ = 0;
};

}  // namespace dtrun::stores
