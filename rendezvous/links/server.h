#pragma once

#include "base/ids.h"
#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "base/throttle.h"
#include "rendezvous/links/handshake.h"
#include "rendezvous/links/link.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dtrun {

struct ServerOptions {
    std::chrono::milliseconds authentication_timeout{5'000};
    /// Most unauthenticated connections, also limited to a quarter of our descriptors; one address
    /// may have a quarter of them. A further one closes any of them: who is legitimate tries again.
    std::size_t unauthenticated_max = 4'096;
    bool encrypt = false;  ///< clients must want the same
};

/// The TCP rendezvous server: accepts connections and passes those to its owner that prove to know
/// a job's secret.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join() before destruction.
class Server {
public:
    /// Called with each authenticated connection.
    using Admit = std::function<void(const JobId&, Connection)>;

    Server(asio::any_io_executor executor, SecretOf secret_of, Admit admit,
           ServerOptions options = {});

    /// Listens on `addresses` (numeric), all on one port; repeatable. Port 0: any free one.
    /// \return the port. Errc: invalid_input, denied (a privileged port), internal (taken)
    Result<std::uint16_t> listen(const std::vector<std::string>& addresses, std::uint16_t port);
    /// Serves a socket that listens already, e.g. one of systemd's. Errc: invalid_input
    Result<std::uint16_t> adopt(int fd);

    /// Serves a connection that was accepted elsewhere.
    void meet(tcp::socket socket);

    void stop() noexcept;  ///< idempotent
    asio::awaitable<void> join();

private:
    /// A connection that is not authenticated yet.
    struct UnauthenticatedPeer {
        std::shared_ptr<tcp::socket> socket;
        std::string
            from;  ///< its IPv4 address or IPv6 /64 network, all of which one machine may use
    };

    void serve(std::unique_ptr<tcp::acceptor> acceptor);
    asio::awaitable<void> accept_loop(tcp::acceptor& acceptor);
    void make_room(const std::string& from);
    bool forget(std::uint64_t id);
    void denied(const std::string& peer, const Error& why);
    asio::awaitable<void> greet(std::shared_ptr<tcp::socket> socket, std::uint64_t id);

    asio::any_io_executor executor_;
    SecretOf secret_of_;
    Admit admit_;
    ServerOptions options_;
    std::vector<std::unique_ptr<tcp::acceptor>> acceptors_;
    std::map<std::uint64_t, UnauthenticatedPeer> unauthenticated_;  ///< by number
    std::map<std::string, std::size_t> unauthenticated_from_;
    std::uint64_t last_unauthenticated_ = 0;
    Throttle crowd_;
    std::size_t denied_ = 0;  ///< refused connections since denials_since_
    Deadline denials_since_{};
    TaskGroup tasks_;
};

}  // namespace dtrun
