#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "launcher/plan/daemon_target.h"
#include "launcher/plan/options.h"
#include "rendezvous/daemon/daemon.h"

#include <memory>
#include <string>

namespace dtrun::head {

/// The daemon of a job whose nodes have met at this one: part of the command that runs here, and gone with it.
///
/// Thread: the executor's. Lifetime: finish() is awaited before one that was opened is destroyed.
class JobServer {
public:
    /// \return null if somebody listens at the port: another command on this machine, it is assumed, which
    /// serves the job; else it has to prove that it knows the secret.
    /// Errc: invalid_input, internal
    static Result<std::unique_ptr<JobServer>> open(asio::any_io_executor executor,
                                                   const plan::DaemonTarget& target,
                                                   const plan::Options& options);

    void interrupt(int signal);      ///< ends the job for all nodes
    asio::awaitable<void> finish();  ///< serves until all nodes have gone

private:
    JobServer(asio::any_io_executor executor, DaemonOptions options, std::string job);
    asio::awaitable<void> stop(std::string why);
    asio::awaitable<void> tell_of_others();

    asio::any_io_executor executor_;
    std::string job_;
    Daemon daemon_;
    TaskGroup tasks_;
};

}  // namespace dtrun::head
