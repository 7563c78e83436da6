#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"

#include <memory>
#include <string>

namespace dtrun::transport {

/// The user's ssh-agent, lent for a while: a socket at which an ssh finds it, until it is taken back. An ssh that forwards
/// the agent itself (`-A`) does so as long as it lives, and that is as long as the job.
///
/// Thread: the executor's. Lifetime: the owner awaits take_back() before destruction, unless the process ends.
class LentAgent {
public:
    /// \param agent  path of its socket. Errc: internal
    static Result<std::unique_ptr<LentAgent>> lend(asio::any_io_executor executor,
                                                   std::string agent);
    ~LentAgent() { remove(); }
    LentAgent(const LentAgent&) = delete;
    LentAgent& operator=(const LentAgent&) = delete;

    const std::string& path() const { return path_; }
    /// Removes the socket and ends all connections. Idempotent.
    asio::awaitable<void> take_back();

private:
    struct Loan;

    LentAgent(asio::any_io_executor executor, std::string agent);
    Result<void> listen();
    void remove() noexcept;
    asio::awaitable<void> accept();
    asio::awaitable<void> pass(std::shared_ptr<Loan> loan, bool to_agent);

    asio::any_io_executor executor_;
    const std::string agent_;
    std::string folder_, path_;  ///< empty: nobody can connect
    Unix::acceptor acceptor_;
    TaskGroup tasks_;
};

}  // namespace dtrun::transport
