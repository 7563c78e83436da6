#pragma once

#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/router.h"
#include "rendezvous/wire/store_request.h"
#include "worker/client/callers.h"
#include "worker/client/change_view.h"
#include "worker/client/client_membership.h"
#include "worker/client/connect/daemon.h"
#include "worker/client/connect/launchers.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/event_queue.h"
#include "worker/client/fences.h"
#include "worker/client/first_use.h"
#include "worker/client/keep_alive.h"
#include "worker/client/loss_hooks.h"
#include "worker/client/member_session.h"
#include "worker/client/requests.h"
#include "worker/client/server_connection.h"
#include "worker/client/step/rendezvous.h"
#include "worker/client/step_marks.h"

#include <sys/types.h>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::embedded {

/// A process's connection to whoever serves its job: an agent, a daemon, rank 0 of a Slurm step, or
/// nobody.
///
/// It wires those who have a part of it each: ServerConnection reads, waits and sends, Requests and Fences
/// know what is under way, ClientMembership knows the rank's place, EventQueue what it has not heard yet,
/// KeepAlive watches a daemon, StepRendezvous brings a Slurm step together.
///
/// Thread: any number of threads may be in its functions; those that wait read. Only with a daemon
/// there is a thread of our own; what is under way is then sent again over a new connection, and
/// callers notice nothing.
/// Locks: the connection's, under which there is no other one; FirstUse and Callers have their own
/// for a moment.
/// Lifetime: leave() sees to it that no thread is in its functions when it is destroyed.
/// A forked child must not use it, as threads that the child does not have may hold its locks. The
/// child makes a Client for itself.
class Client final : private ServerConnection::Handler {
public:
    enum class Role {
        rank,
        helper  ///< child of a rank: uses the store and nothing else
    };

    /// \param elastic  the rank can go on in another generation
    Client(Surroundings surroundings, std::optional<ClientCredentials> credentials, Role role,
           bool elastic = false);
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    /// Connects, and takes a rank's place. A helper does so when it is first used.
    Outcome<void> start(const WaitContext& context);
    /// Says how this rank has ended, and ends the calls of others, with DTRUN_CLOSED. Returns when
    /// nobody is left in a call, and rank 0 of a Slurm step when the other ranks have left, too,
    /// unless it has failed.
    void leave(std::string_view failure, std::function<bool()> give_up);
    Callers& callers() { return callers_; }  ///< leave() waits for them

    // For a forked child: these take no lock.
    pid_t pid() const { return pid_; }
    Surroundings inherited() const;  ///< to make a helper of
    const std::optional<ClientCredentials>& credentials() const { return credentials_; }

    Role role() const { return role_; }
    Launcher launcher() const { return surroundings_.launcher; }
    bool is_served() const;  ///< there is somebody to connect to
    bool is_member() const;  ///< a daemon hands out our rank
    /// Why nobody serves us: a call that needs that can say so.
    Failure unserved() const;
    /// These do not change once start() has succeeded.
    const std::string& job() const { return membership_.job(); }
    const std::string& host_name() const { return membership_.host_name(); }
    RankInfo rank_info() const;
    /// Who we are to the store, where something is ours.
    std::uint64_t owner() const { return client_id_; }
    std::uint64_t generation() const { return membership_.generation(); }

    /// Asks the store and waits for the results, a MessagePack array.
    /// \param timeout_ms  of an operation that may wait in the store: goes to the other side with the
    ///                    request, and we stop waiting two seconds later; of others, when we do.
    ///                    Negative: none
    /// Failures name the operation and its key.
    Outcome<Bytes> request(StoreRequest request, std::int64_t timeout_ms,
                           std::function<bool()> give_up);
    /// Takes back the memory of results for those to come.
    void reuse(Bytes results) { requests_.reuse(std::move(results)); }
    /// The same, but does not wait for the results, which complete() has.
    /// \param submission  of which the rest follows from `request`: timeout, argument, prefix and more
    /// \return its number. Failures: then complete() has none
    Outcome<std::uint64_t> submit(StoreRequest request, Requests::Submission submission,
                                  std::function<bool()> give_up);
    /// The next request that has ended. Failures: timed_out, cancelled, closed, no_launcher
    Outcome<Requests::Completion> complete(const WaitContext& context);
    /// \return whether a request of that number had not ended
    bool cancel(std::uint64_t number) { return requests_.cancel(number); }

    /// Requires is_served().
    /// \param bytes  std::nullopt for a barrier
    /// \return what ranks brought, by rank; those that brought nothing are missing
    Outcome<std::vector<FenceEntry>> fence(std::string_view name,
                                           std::optional<std::string_view> bytes,
                                           std::int64_t timeout_ms, std::function<bool()> give_up);
    Outcome<void> progress(std::uint64_t step, const WaitContext& context = {});
    Outcome<RankEvent> next_event(const WaitContext& context);
    Outcome<int> event_fd();
    Outcome<void> rejoin(const WaitContext& context);
    /// Who receives what comes in.
    const Router<>& router() const { return router_; }
    bool can_rejoin() const { return is_member() || (elastic_ && role_ == Role::rank); }

    /// What is coming; any thread may look, at any time.
    const ChangeView& changes() const { return changes_; }
    Outcome<void> wait_for_change(const WaitContext& context);
    Outcome<std::uint64_t> on_loss(std::function<void()> lost);
    void on_loss_end(std::uint64_t id) { loss_hooks_.remove(id); }
    Outcome<void> section(const Section& section, const WaitContext& context = {});
    Outcome<void> stall(const Stall& stall, const WaitContext& context = {});

private:
    using Lock = ServerConnection::Lock;

    bool has_daemon() const { return surroundings_.daemon.has_value(); }
    bool in_step() const { return step_.has_value(); }
    Outcome<Bytes> frame_of(const StoreRequest& request, const WaitContext& context);
    Outcome<Bytes> ask(const StoreRequest& request, Bytes frame, const WaitContext& context);
    std::optional<Outcome<Bytes>> ask_directly(const StoreRequest& request, Bytes& frame,
                                               const WaitContext& context);
    Outcome<FrameSocket> dial(const WaitContext& context);
    std::vector<Bytes> first_frames(const FrameSocket& socket) const;
    Hello hello() const;
    Bytes opening_frame(const FrameSocket& socket) const;
    std::vector<Bytes> last_frames(std::string_view failure);
    Outcome<void> take_place(Moment begun, const WaitContext& context);
    Outcome<void> rejoin_daemon(const WaitContext& context);
    Outcome<void> rejoin_agent(const WaitContext& context);
    /// A rank of our generation is lost, and we are to leave it.
    bool is_over() const { return (elastic_ || is_member()) && changes_.is_over(generation()); }
    Failure over() const;
    template <class Ready>
    Outcome<void> wait_for_place(Lock& lock, Ready ready, const WaitContext& context);

    // client_frames.cpp: what comes in
    void on_open(int socket) override;
    void on_bytes() override;
    Result<void> on_frame(const FrameView& frame) override { return router_.route(frame); }
    bool on_lost() override;
    void on_closed() override;
    void on_unsent(bool is_left) override { events_.on_unsent(is_left); }
    void subscribe();
    void refused(const Refuse& refuse);
    void welcomed(Welcome welcome);
    void board_came();
    void event_came(RankEvent event);
    void stopped(Stop stop);

    // client_member.cpp: what a daemon says to a member, as to an agent with one rank
    void subscribe_member();
    Result<void> numbered(std::string_view payload);
    Result<void> heard(const Heard& heard);
    Result<void> assigned(const Assign& assign);
    void prepared(const Prepare& prepare);
    void notified(const Notify& notice);
    void ready_to_commit(const QueryCommit& query_commit);
    void connections_reset(const ResetConnections& reset_connections);
    void paused(Pause pause);
    void dismissed(const EndRanks& order);
    void say(const Bytes& frame);
    void add_event(RankEvent event);

    const Surroundings surroundings_;
    const std::optional<ClientCredentials> credentials_;
    const Role role_;
    const bool elastic_;
    const pid_t pid_;
    const std::uint64_t client_id_;
    const MemberId member_id_;
    const StepMarks marks_;
    Callers callers_;
    FirstUse first_use_;  ///< of a helper

    Router<> router_;              ///< what comes in
    Router<> orders_;              ///< of a daemon to a member
    ServerConnection connection_;  ///< its lock guards what follows
    ClientMembership membership_;
    EventQueue events_;
    ChangeView changes_;
    MemberSession member_;
    std::uint64_t left_ = 0;     ///< the generation that we have asked to leave
    std::uint64_t pausing_ = 0;  ///< the one for which a daemon has all ranks start again
    std::uint64_t paused_ = 0;   ///< the last of these that we have said to be ready for
    Requests requests_;
    Fences fences_;
    std::set<std::string> sections_;  ///< that have begun and not ended
    bool takes_stalls_ = false;       ///< our agent does
    bool ending_ = false;  ///< the job or our membership ends: a lost connection is given up
    std::optional<std::string> job_ended_;  ///< why, once we were told so

    std::optional<StepRendezvous> step_;  ///< only start() and leave() change it
    LossHooks loss_hooks_{changes_, [this] { return generation(); }};
    std::optional<KeepAlive> keep_alive_;  ///< of a daemon; the last, for its thread uses all
};

}  // namespace dtrun::embedded
