#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "worker/mpi/network.h"
#include "worker/mpi/pmix_environment.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace dtrun::mpi {

/// The connections of a host's ranks to the agent, each with one from there to libpmix, and the bytes
/// between them. Keeps from libpmix what it would take for the loss of a rank: a second program of the
/// same rank, and the end of a rank that has finalized.
///
/// Thread: the executor's. Lifetime: `observer` and `tasks` outlive it, as long as coroutines run; it
/// outlives its connections.
class PmixConnections {
public:
    /// A rank's connection to us, and ours to libpmix for it.
    class Connection {
    public:
        Connection(PmixConnections& owner, tcp::socket rank);
        ~Connection();
        Connection(const Connection&) = delete;
        Connection& operator=(const Connection&) = delete;

        tcp::socket& rank() { return rank_; }
        bool is_open() const { return rank_.is_open(); }

    private:
        friend class PmixConnections;
        void close();
        std::string peek();
        bool is_alive();

        PmixConnections& owner_;
        tcp::socket rank_;
        tcp::socket libpmix_;
        std::optional<std::uint32_t>
            client_;  ///< who it is; unset: not known, or not passed on yet
        bool finalized_ = false;
    };
    using Shared = std::shared_ptr<Connection>;

    PmixConnections(asio::any_io_executor executor, MpiObserver& observer, TaskGroup& tasks);

    Shared add(tcp::socket rank);
    /// Turns away a second program of a rank while the first one uses PMIx, which the observer is
    /// told of once until close(). libpmix would take the two for the same client and replace the
    /// data of the first, which then crashes.
    /// \param newcomer  has sent something that was not read. \return whether it was one
    bool is_second(Connection& newcomer, const PmixEnvironment& environment);
    /// Connects it to libpmix and passes bytes on until both are closed.
    /// \param port  of libpmix, on loopback
    asio::awaitable<void> pass_on(Shared connection, std::uint16_t port);

    /// The rank's connections will end, and it is not lost by that.
    void finalized(std::uint32_t rank);
    /// Closes all, and forgets who has finalized.
    void close();

private:
    asio::awaitable<void> pass_bytes(Shared connection, bool to_libpmix);
    void rank_hung_up(const Shared& connection);

    asio::any_io_executor executor_;
    MpiObserver& observer_;
    TaskGroup& tasks_;
    std::set<Connection*> connections_;
    std::size_t finalized_ = 0;  ///< ranks whose connections are still to end
    std::deque<std::weak_ptr<Connection>> ended_well_;  ///< libpmix does not know yet
    bool told_of_second_ = false;
};

}  // namespace dtrun::mpi
