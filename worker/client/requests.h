#pragma once

#include "rendezvous/wire/store_request.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/patience.h"
#include "worker/client/connection.h"
#include "worker/client/standing.h"

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

namespace dtrun::embedded {

/// A client's requests to the store that have no answer yet. They are numbered in the order in which
/// they are sent; each frame is kept until its answer, to be sent again over another connection; and
/// at most 64 of those that change something are under way, which is how many answers the other side
/// keeps.
///
/// Thread: any may ask(); the rest is called with the connection's lock held, which guards
/// everything.
class Requests {
public:
    /// \param client  the id under which the other side knows them
    Requests(Connection& connection, const Standing& standing, std::uint64_t client)
        : connection_(connection), standing_(standing), client_(client) {}

    /// Sends a request and waits for its results, a MessagePack array. One that nobody waits for any
    /// more is cancelled.
    /// \param frame  the request with an empty header
    Outcome<Bytes> ask(Op op, Bytes frame, const Patience& patience);

    Result<void> on_reply(std::string_view payload);
    /// Ends the calls that wait for an answer. One that comes nevertheless is dropped.
    void end_all(const Failure& why);
    /// Adds the frames of all that are under way.
    void add_unanswered(std::vector<Bytes>& frames) const;

private:
    struct Call : Connection::Waiter {
        std::uint64_t id = 0;
        Bytes frame;
        bool has_turn = false;  ///< it is one of changes_
        Status status{};
        Bytes results;
    };
    using Lock = Connection::Lock;

    Outcome<void> take_turn(Lock& lock, const Patience& patience);
    void give_turn(Call& call);
    Outcome<Bytes> results_of(Call& call) const;
    RequestHeader header_for(std::uint64_t id, Op op) const;
    void send_cancel(std::uint64_t id);

    static constexpr int kChangesMax = 64;

    Connection& connection_;
    const Standing& standing_;
    const std::uint64_t client_;
    std::vector<Call*> calls_;               ///< by id
    std::deque<Connection::Waiter*> turns_;  ///< changes that are too many
    int changes_ = 0;                        ///< under way
    std::uint64_t last_id_ = 0;
};

}  // namespace dtrun::embedded
