#pragma once

#include "rendezvous/wire/store_request.h"
#include "worker/client/client_membership.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/direct_store.h"
#include "worker/client/event_queue.h"
#include "worker/client/server_connection.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::embedded {

/// A client's requests to the store that have no answer yet. They are numbered in the order in which
/// they are sent; each frame is kept until its answer, to be sent again over another connection; and
/// at most 64 of those that change something are under way, which is how many answers the other side
/// keeps for a client. More of them wait for their turns, in their order.
///
/// Some change something and wait, for as long as they like, for what others have yet to do: a pop, a claim or a lock. So each
/// that is under way has a client's id of its own, which the next one takes over: it takes no turn, and
/// is known to be answered when the next one is asked.
///
/// What is this client's own is so as long as the other side knows that it is there: that is said before the first
/// request that is about such things, and again on each new connection. A lock or an item of which nobody here has
/// heard, as its call ended without an answer, is given back.
///
/// Who is interrupted, or out of time, while a change is under way asks for two seconds at most how it
/// has ended: it is done, or not done, or nobody knows, which the failure says.
///
/// A thread may wait for its request, by ask(), or take the results of all that were submitted, by complete().
///
/// What the store does at once may go past the agent, by ask_directly(), where nothing else is under way: so requests and
/// fences of a thread are done in its order, whichever way they go.
///
/// Thread: any may ask(), submit(), complete() and cancel(); the rest is called with the connection's lock
/// held, which guards everything.
class Requests {
public:
    /// What is known of a request besides its frame.
    struct Submission {
        Op op{};
        Moment limit = Moment::max();  ///< by which it is answered, or ends
        std::int64_t timeout_ms = -1;  ///< for texts
        void* argument = nullptr;
        std::uint64_t owner = 0;       ///< whose things it is about; 0: nobody's
        std::size_t prefix_bytes = 0;  ///< of the keys of its results: the handle's
        bool more = false;             ///< others follow: it may be sent with them
    };
    /// A submitted request that has ended.
    struct Completion {
        std::uint64_t number = 0;
        Submission submission;
        std::shared_ptr<const Bytes> frame;  ///< of one that has failed
        Outcome<Bytes> results;              ///< a MessagePack array
    };

    /// \param client  the id under which the other side knows them
    /// \param events  whose descriptor tells that complete() has something to do
    Requests(ServerConnection& connection, const ClientMembership& membership, EventQueue& events,
             std::uint64_t client)
        : connection_(connection), membership_(membership), events_(events), client_(client) {}

    /// Sends a request and waits for its results, a MessagePack array. One that nobody waits for any
    /// more is cancelled.
    /// \param frame  the request with an empty header
    /// Failures: those of the store (timed_out without a text); timed_out, cancelled, closed, which say
    /// so if a change may have been done; and those of end_all()
    /// \param owner  whose things it is about; 0: nobody's
    Outcome<Bytes> ask(Op op, Bytes frame, const WaitContext& context, std::uint64_t owner = 0);

    /// The same by the store of this machine, for what it does at once.
    /// \return nothing, where that cannot be now: the frame is as it was, and may be asked
    std::optional<Outcome<Bytes>> ask_directly(Op op, Bytes& frame, const WaitContext& context);
    /// The same without a wait. \return its number, for cancel(). Failures: why the connection is closed
    Outcome<std::uint64_t> submit(const Submission& submission, Bytes frame);
    /// The first submitted request that has ended, once there is one. Failures: timed_out, cancelled, why
    /// the connection is closed
    Outcome<Completion> complete(const WaitContext& context);
    /// As if the thread that waits for it were interrupted. \return whether it had not ended
    bool cancel(std::uint64_t number);

    /// Takes back the memory of results for those to come.
    void reuse(Bytes results);
    DirectStore& direct_store() { return direct_store_; }

    Result<void> on_reply(std::string_view payload);
    /// The connection is closed: what was submitted ends.
    void on_closed();
    /// Ends all calls that wait for an answer. One that comes nevertheless is dropped.
    void end_all(const Failure& why);
    /// Adds the frames of all that are under way.
    void add_unanswered(std::vector<Bytes>& frames) const;
    /// Adds those that say that the other side need not keep its answers any longer.
    void add_gone(std::vector<Bytes>& frames) const;

private:
    /// A client's id for one request at a time.
    struct Lane {
        std::uint64_t client = 0;
        std::uint64_t last_id = 0;
    };
    struct Call : ServerConnection::Waiter {
        Op op{};
        std::uint64_t id = 0;  ///< 0: it was not sent, and waits for its turn
        Lane lane;             ///< of one that has a lane
        std::uint64_t owner = 0;
        std::shared_ptr<Bytes> frame;
        std::shared_ptr<Bytes> cancel;
        bool has_turn = false;  ///< it is one of changes_
        bool was_sent = false;  ///< to whom it may have reached
        std::optional<Failure>
            given_up;  ///< why nobody waits for more than to hear whether it was done
        Moment limit = Moment::max();  ///< of that, or of the whole
        std::uint64_t number = 0;      ///< of one that was submitted
        Submission submission;
        Status status{};
        Bytes results;
    };
    using CallPtr = std::shared_ptr<Call>;
    using Lock = ServerConnection::Lock;

    void begin(const CallPtr& call);
    void send(const CallPtr& call);
    void give_turn(Call& call);
    void take_lane(Call& call);
    void end_lane(Call& call, bool is_answered);
    Bytes end_of_lane(Call& call) const;
    void finish(const CallPtr& call, bool is_answered);
    void fail(const CallPtr& call, Failure why);
    void give_up(const CallPtr& call, Failure why, Moment deadline);
    void end_unheard(const CallPtr& call);
    void end_late();
    Moment first_limit() const;
    void set_limit(Call& call, Moment limit);
    void show();
    Completion take_finished();
    CallPtr find(const ReplyHeader& reply) const;
    void take(const ReplyView& reply, Call& call);
    bool may_go_directly() const;
    std::optional<Outcome<Bytes>> ask_in_turn(Op op, Bytes& frame, const WaitContext& context);
    Outcome<Bytes> results_of(Call& call) const;
    RequestHeader header_for(Call& call);
    std::shared_ptr<Bytes> cancel_frame(Call& call);

    static constexpr int kChangesMax = 64;

    ServerConnection& connection_;
    const ClientMembership& membership_;
    EventQueue& events_;
    const std::uint64_t client_;
    std::map<std::uint64_t, CallPtr> calls_;  ///< by id, but for those in lanes
    std::map<std::uint64_t, CallPtr> lanes_;  ///< those, by their lanes' clients
    std::vector<Lane> idle_;                  ///< lanes whose requests have been answered
    std::shared_ptr<Bytes> own_;              ///< says that things are ours; nullptr: none ever was
    std::deque<Bytes> left_;     ///< what ends those that were given up, in case it was not heard
    std::deque<CallPtr> turns_;  ///< changes that are too many
    int changes_ = 0;            ///< under way
    std::uint64_t last_id_ = 0;

    std::map<std::uint64_t, CallPtr> submitted_;         ///< by number, until they end
    std::set<std::pair<Moment, std::uint64_t>> limits_;  ///< of these
    std::deque<CallPtr> finished_;                       ///< until they are taken
    std::uint64_t last_number_ = 0;
    /// The last generation in which a change may be under way still of which nobody wants to hear any more.
    std::optional<std::uint64_t> unheard_in_;
    DirectStore direct_store_;
    Bytes spare_;  ///< of results that were large, as long as such come
};

}  // namespace dtrun::embedded
