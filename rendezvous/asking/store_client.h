#pragma once

#include "base/ids.h"
#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/links/handshake.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/store_request.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::asking {

/// Whom `dtrun store` asks.
struct StoreServer {
    /// A daemon and what it is to be shown.
    struct Daemon {
        std::string name;                    ///< for messages
        std::vector<std::string> addresses;  ///< numeric
        std::uint16_t port = 0;
        Credentials credentials;
        std::string job;
    };
    std::string agent_socket;  ///< DTRUN_SOCKET, of our rank's agent; empty: the daemon
    Daemon daemon{};           ///< if there is no agent
    std::chrono::milliseconds connect_limit{10'000};  ///< of the first connection
    /// How long a daemon that was lost may take to come back.
    std::chrono::milliseconds return_limit{60'000};

    std::string name() const {
        return agent_socket.empty() ? daemon.name : "the agent of this rank (DTRUN_SOCKET)";
    }
};

/// A client of a job's store. A daemon that was lost, since it was started again, cut off or stopped, is
/// connected to again and asked again, which does nothing twice; an agent is not.
///
/// Thread: the executor's. Lifetime: the owner awaits close() before destruction.
class StoreClient {
public:
    StoreClient(asio::any_io_executor executor, StoreServer server);

    /// Errc: unreachable, timed_out, denied (the secret is wrong)
    asio::awaitable<Result<void>> connect();

    struct Reply {
        Status status{};
        Bytes results;
    };
    /// Begins to own things in the store: those of requests with this `owner`, as long as this client is connected,
    /// or soon is again.
    std::uint64_t own();
    /// Asks, and ends at the deadline whatever the server does.
    /// Errc: timed_out, unreachable, denied, closed; cancelled: it refuses us for good
    asio::awaitable<Result<Reply>> ask(StoreRequest request, Deadline deadline);
    /// Has the ask() that is under way end soon, and not go on over another connection: cancelling it may come to
    /// nothing, in moments in which it waits for what it has started. The next one asks again.
    void give_up() { is_given_up_ = true; }

    asio::awaitable<void> close();

    const asio::any_io_executor& executor() const { return executor_; }

private:
    /// A connection and what runs on it.
    struct Line {
        Line(asio::any_io_executor executor, std::unique_ptr<Link> link_)
            : link(std::move(link_)), tasks(executor), detector(executor, kHeartbeatTimeout) {}

        std::unique_ptr<Link> link;
        TaskGroup tasks;
        FailureDetector detector;
        std::string lost;  ///< why it was closed from here
    };

    asio::awaitable<Result<void>> connect_to_agent();
    asio::awaitable<Result<void>> connect_to_daemon(Deadline deadline);
    asio::awaitable<Result<void>> reconnect(Error why, Deadline deadline);
    asio::awaitable<Result<Reply>> next_reply(Deadline deadline);
    asio::awaitable<void> hang_up();
    void open(std::unique_ptr<Link> link, const Bytes& first);
    void tell_of_owner();
    void beat();

    asio::any_io_executor executor_;
    StoreServer server_;
    std::shared_ptr<Line> line_;  ///< shared with a time limit that may have passed
    std::uint64_t client_ = random_id();
    std::uint64_t id_ = 0;
    std::uint64_t owner_ = 0;  ///< 0: owns nothing
    std::uint64_t owner_id_ = 0;
    bool is_given_up_ = false;
};

}  // namespace dtrun::asking
