#pragma once

#include "base/loop/asio.h"
#include "rendezvous/wire/frame.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

namespace dtrun::stores {

/// The store at the root of the job's tree, asked over whatever leads there.
///
/// Thread: one.
class RelayedStore final : public JobStore {
public:
    /// \param send  takes a frame's type and payload, towards the root
    using Send = std::function<void(FrameType, std::string_view)>;
    RelayedStore(asio::any_io_executor executor, Send send)
        : executor_(std::move(executor)), send_(std::move(send)) {}

    /// The payload of a `reply` frame. Errc: invalid_input
    Result<void> on_reply(std::string_view payload);
    /// From here on requests are for this generation; those of the one before are forgotten.
    void begin(std::uint64_t generation);

private:
    Ticket start(const StoreRequest& request, Answer answer) override;
    void forget(Ticket ticket) override;

    /// Has a limited number of requests that change something under way (docs/PROTOCOL.md), so there
    /// are as many clients as it takes.
    struct Client {
        std::uint64_t last_id = 0;
        std::map<std::uint64_t, Ticket> unanswered;  ///< by id
        std::size_t changing = 0;                    ///< of these
    };
    struct Pending {
        std::uint64_t client = 0;  ///< 0: it is too large, and not sent
        std::uint64_t id = 0;
        Op op{};
        Answer answer;  ///< empty: forgotten
    };

    Client& client_for(Op op, std::uint64_t& client_id);
    void send(Ticket ticket, std::uint64_t client_id, Client& client, const StoreRequest& request,
              Answer answer);
    void refuse_later(Ticket ticket);

    asio::any_io_executor executor_;
    Send send_;
    std::uint64_t generation_ = 0;
    std::map<std::uint64_t, Client> clients_;  ///< by the client's number
    std::unordered_map<Ticket, Pending> pending_;
    Ticket last_ticket_ = 0;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< for what is queued when we die
};

}  // namespace dtrun::stores
