#pragma once

#include "rendezvous/exchange_messages.h"
#include "rendezvous/heartbeat.h"
#include "rendezvous/store_request.h"
#include "worker/client/callers.h"
#include "worker/client/connection.h"
#include "worker/client/daemon.h"
#include "worker/client/event_queue.h"
#include "worker/client/first_use.h"
#include "worker/client/launchers.h"
#include "worker/client/outcome.h"
#include "worker/client/patience.h"
#include "worker/client/standing.h"
#include "worker/client/step_meeting.h"

#include <sys/types.h>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace dtrun::embedded {

/// A process's connection to whoever serves its job: an agent, a daemon, rank 0 of a Slurm step, or
/// nobody.
///
/// Thread: any number of threads may be in its functions; those that wait read (Connection). Only
/// with a daemon there is a thread of our own, which sends heartbeats and reconnects; requests under
/// way are then sent again, and their callers notice nothing.
/// Locks: what changes after start() is guarded by the connection's.
/// Lifetime: leave() sees to it that no thread is in its functions when it is destroyed.
/// A forked child must not use it, as threads that the child does not have may hold its locks. The
/// child makes a Client for itself.
class Client final : private Connection::Handler {
public:
    enum class Role {
        rank,
        helper  ///< child of a rank: uses the store and nothing else
    };

    Client(Surroundings surroundings, std::optional<Credentials> credentials, Role role);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    /// Connects, and takes a rank's place. A helper does so when it is first used.
    Outcome<void> start(const Patience& patience);
    /// Says how this rank has ended, and ends the calls of others, with DTRUN_CLOSED. Returns when
    /// nobody is left in a call, and rank 0 of a Slurm step when the other ranks have left, too,
    /// unless it has failed.
    void leave(std::string_view failure, std::function<bool()> give_up);
    Callers& callers() { return callers_; }  ///< leave() waits for them

    // For a forked child: these take no lock.
    pid_t pid() const { return pid_; }
    Surroundings inherited() const;  ///< to make a helper of
    const std::optional<Credentials>& credentials() const { return credentials_; }

    Role role() const { return role_; }
    Launcher launcher() const { return surroundings_.launcher; }
    bool is_served() const;  ///< there is somebody to connect to
    bool is_member() const;  ///< a daemon hands out our rank
    /// Why nobody serves us: a call that needs that can say so.
    Failure unserved() const;
    /// These do not change once start() has succeeded.
    const std::string& job() const { return standing_.job(); }
    const std::string& host_name() const { return standing_.host_name(); }
    Place place() const;
    std::uint64_t generation() const { return standing_.generation(); }

    /// Asks the store and waits for the results, a MessagePack array.
    /// \param timeout_ms  goes to the other side with the request; when that does not answer in time,
    ///                    we stop waiting a while later; negative: none
    Outcome<Bytes> request(StoreRequest request, std::int64_t timeout_ms,
                           std::function<bool()> give_up);

    /// Requires is_served().
    /// \param bytes  std::nullopt for a barrier
    /// \return what ranks brought, by rank; those that brought nothing are missing
    Outcome<std::vector<FenceEntry>> fence(std::string_view name,
                                           std::optional<std::string_view> bytes,
                                           std::int64_t timeout_ms, std::function<bool()> give_up);
    Outcome<void> progress(std::uint64_t step);
    Outcome<Event> next_event(const Patience& patience);
    Outcome<int> event_fd();
    Outcome<void> rejoin(const Patience& patience);

private:
    using Lock = Connection::Lock;
    using Waiter = Connection::Waiter;
    struct Call : Waiter {
        std::uint64_t id = 0;
        Bytes frame;  ///< kept to be sent again
        Status status{};
        Bytes results;
    };
    struct FenceCall : Waiter {
        Fence fence;
        std::optional<GroupFence> of_group;  ///< the same, for a daemon that has not numbered us
        Bytes frame;
        Fenced result;
    };

    bool has_daemon() const { return surroundings_.daemon.has_value(); }
    bool in_step() const { return step_.has_value(); }
    Outcome<FrameSocket> dial(const Patience& patience, bool again);
    Hello hello() const;
    Bytes opening_frame(const FrameSocket& socket) const;
    std::vector<Bytes> last_frames(std::string_view failure) const;
    Outcome<void> take_place(const Patience& patience);

    // client_frames.cpp: what comes in
    void on_open(int socket) override;
    void on_bytes() override;
    Result<void> on_frame(const FrameView& frame) override;
    bool on_lost() override;
    void on_closed() override;
    Result<void> on_heartbeat(std::string_view payload);
    Result<void> on_welcome(std::string_view payload);
    Result<void> on_reply(std::string_view payload);
    Result<void> on_fenced(std::string_view payload);
    Result<void> on_assign(std::string_view payload);
    Result<void> on_propose(std::string_view payload);
    Result<void> on_stop(std::string_view payload);
    void add_event(Event event);

    // client_calls.cpp: what goes out
    Outcome<void> take_turn(Lock& lock, const Patience& patience);
    void give_turn();
    Outcome<Bytes> results_of(Call& call) const;
    Outcome<std::vector<FenceEntry>> result_of(FenceCall& call);
    void send_unfence(FenceCall& call, std::string why);
    RequestHeader header_for(std::uint64_t id, Op op) const;
    void send_cancel(std::uint64_t id);

    // client_alive.cpp: the daemon's thread
    void keep_alive();
    void beat(Lock& lock);
    void reconnect(Lock& lock);

    static constexpr int kChangesMax = 64;  ///< requests under way that change something

    const Surroundings surroundings_;
    const std::optional<Credentials> credentials_;
    const Role role_;
    const pid_t pid_;
    const std::uint64_t client_id_;
    const MemberId member_id_;
    Callers callers_;
    FirstUse first_use_;  ///< of a helper

    Connection connection_;     ///< its lock guards everything below
    std::vector<Call*> calls_;  ///< by id
    std::vector<FenceCall*> fences_;
    std::deque<Waiter*> turns_;  ///< calls that change something and are too many
    int changes_ = 0;            ///< under way
    std::uint64_t last_id_ = 0;
    std::map<std::string, std::uint64_t, std::less<>> rounds_;  ///< by name of a fence

    std::optional<StepMeeting> step_;

    Standing standing_;
    std::optional<RankProgress> progress_;
    EventQueue events_;

    std::thread thread_;
    std::condition_variable tick_;
    bool stopping_ = false;
    bool ending_ = false;                                        ///< the job or our membership ends
    Moment heard_{};                                             ///< last sign of life
    std::chrono::milliseconds silence_max_ = kHeartbeatTimeout;  ///< then the daemon is lost
    bool answered_ = false;  ///< the daemon has said something over this connection
    Moment lost_since_{};    ///< the last connection over which it had
};

}  // namespace dtrun::embedded
