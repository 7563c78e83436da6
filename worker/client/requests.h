#pragma once

#include "rendezvous/wire/store_request.h"
#include "worker/client/client_membership.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/server_connection.h"

#include <cstdint>
#include <deque>
#include <map>
#include <string_view>
#include <vector>

namespace dtrun::embedded {

/// A client's requests to the store that have no answer yet. They are numbered in the order in which
/// they are sent; each frame is kept until its answer, to be sent again over another connection; and
/// at most 64 of those that change something are under way, which is how many answers the other side
/// keeps for a client.
///
/// A pop changes something, and may wait for as long as it likes for what others have yet to push. So each
/// that is under way has a client's id of its own, which the next one takes over: it takes no turn, and
/// is known to be answered when the next one is asked.
///
/// Who is interrupted, or out of time, while a change is under way asks for two seconds at most how it
/// has ended: it is done, or not done, or nobody knows, which the failure says.
///
/// Thread: any may ask(); the rest is called with the connection's lock held, which guards
/// everything.
class Requests {
public:
    /// \param client  the id under which the other side knows them
    Requests(ServerConnection& connection, const ClientMembership& membership, std::uint64_t client)
        : connection_(connection), membership_(membership), client_(client) {}

    /// Sends a request and waits for its results, a MessagePack array. One that nobody waits for any
    /// more is cancelled.
    /// \param frame  the request with an empty header
    /// Failures: those of the store (timed_out without a text); timed_out, cancelled, closed, which say
    /// so if a change may have been done; and those of end_all()
    Outcome<Bytes> ask(Op op, Bytes frame, const WaitContext& context);

    Result<void> on_reply(std::string_view payload);
    /// Ends the calls that wait for an answer. One that comes nevertheless is dropped.
    void end_all(const Failure& why);
    /// Adds the frames of all that are under way.
    void add_unanswered(std::vector<Bytes>& frames) const;
    /// Adds those that say that the other side need not keep its answers any longer.
    void add_gone(std::vector<Bytes>& frames) const;

private:
    /// A client's id for one pop at a time.
    struct Lane {
        std::uint64_t client = 0;
        std::uint64_t last_id = 0;
    };
    struct Call : ServerConnection::Waiter {
        Op op{};
        std::uint64_t id = 0;  ///< 0: it has none, and was not sent
        Lane lane;             ///< of a pop
        Bytes frame;
        Bytes cancel;           ///< of a pop that is cancelled
        bool has_turn = false;  ///< it is one of changes_
        bool was_sent = false;  ///< to whom it may have reached
        Status status{};
        Bytes results;
    };
    using Lock = ServerConnection::Lock;

    Outcome<void> take_turn(Lock& lock, const WaitContext& context);
    void give_turn(Call& call);
    void take_lane(Call& call);
    bool end(Call& call);
    void keep_end(const Call& call);
    Call* find(const ReplyHeader& reply) const;
    Outcome<void> send_and_wait(Lock& lock, Call& call, const WaitContext& context);
    Outcome<void> learn(Lock& lock, Call& call, const WaitContext& context, Failure why);
    Outcome<Bytes> results_of(Call& call) const;
    RequestHeader header_for(Call& call);
    void send_cancel(std::uint64_t id, bool was_interrupted);

    static constexpr int kChangesMax = 64;

    ServerConnection& connection_;
    const ClientMembership& membership_;
    const std::uint64_t client_;
    std::vector<Call*> calls_;             ///< by id, but for pops
    std::map<std::uint64_t, Call*> pops_;  ///< by their lanes' clients
    std::vector<Lane> idle_;               ///< lanes whose pops have been answered
    std::deque<Bytes> left_;  ///< what ends pops that were given up, in case it was not heard
    std::deque<ServerConnection::Waiter*> turns_;  ///< changes that are too many
    int changes_ = 0;                              ///< under way
    std::uint64_t last_id_ = 0;
};

}  // namespace dtrun::embedded
