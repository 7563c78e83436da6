#pragma once

#include "base/threads.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/heartbeat.h"
#include "worker/client/connect/daemon.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/server_connection.h"

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace dtrun::embedded {

/// The thread of a daemon's client: says that we live, notices when the daemon does not, and opens a
/// lost connection again. It reads only when nobody else does, so that it never stands between a
/// caller and its answer.
///
/// A daemon counts as there once it has said something over a connection; one that takes connections
/// and says nothing is tried until the last one over which it spoke has been lost for too long.
///
/// Locks: all is called with the connection's held, which guards everything, but for start() and the
/// destructor. Lifetime: the destructor joins the thread; what it is given outlives it.
class KeepAlive {
public:
    /// What a new connection begins with, made with the lock held.
    using First = std::function<std::vector<Bytes>(const FrameSocket&)>;

    KeepAlive(ServerConnection& connection, const DaemonAddress& daemon,
              const ClientCredentials& credentials, First first);
    ~KeepAlive();
    KeepAlive(const KeepAlive&) = delete;
    KeepAlive& operator=(const KeepAlive&) = delete;

    /// Begins, once the first connection is open.
    /// \param unsent  what is to be sent besides heartbeats, with the lock held
    void start(std::function<Bytes()> unsent);

    void on_open();
    void on_bytes();
    void on_lost();
    void on_closed();
    void on_heartbeat(const Heartbeat& heartbeat);
    /// The daemon does not want us now: that is as if it had said nothing.
    void on_refused();
    /// Has frames sent that take_unsent(), which is given to start(), makes.
    void send_soon();
    /// Goes with the next heartbeat.
    void report(const RankProgress& progress) { progress_ = progress; }

private:
    using Lock = ServerConnection::Lock;

    void run();
    void beat(Lock& lock);
    void send_unsent(Lock& lock);
    void reconnect(Lock& lock);

    ServerConnection& connection_;
    const DaemonAddress& daemon_;
    const ClientCredentials& credentials_;
    const First first_;
    ConditionVariable tick_;
    std::function<Bytes()> unsent_;
    bool asked_to_send_ = false;
    bool is_unsent_ = false;  ///< something that was to be sent may be left
    bool stopping_ = false;
    Moment heard_{};                                             ///< last sign of life
    std::chrono::milliseconds silence_max_ = kHeartbeatTimeout;  ///< then the daemon is lost
    bool answered_ = false;  ///< the daemon has said something over this connection
    Moment lost_since_{};    ///< the last connection over which it had
    std::optional<RankProgress> progress_;
    Thread thread_;
};

}  // namespace dtrun::embedded
