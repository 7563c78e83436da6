#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "launcher/discovery/host_listings.h"
#include "launcher/transport/process_channel.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::discovery {

/// Where the hosts of a job are listed.
struct HostSource {
    std::vector<std::string>
        command;       ///< prints the list; so that neither a script nor a disk blocks us
    std::string name;  ///< for the user
    std::string
        file;  ///< what the command reads: it is run when that changes; empty: it is a script
    std::function<Result<HostList>(std::string_view text)> parse;
    std::chrono::milliseconds interval{1'000};  ///< between two runs
};

/// Reads a job's list of hosts again and again, and says what has changed.
///
/// Thread: the loop's. Lifetime: the owner awaits join() before destruction, unless the process ends.
class HostWatch {
public:
    static constexpr std::chrono::seconds kRunLimit{10};  ///< of one run of the command
    static constexpr std::size_t kListBytesMax = 1u << 20;

    /// \param first      the list that the job has begun with
    /// \param has_agent  as for HostListings
    /// \param apply      takes what has changed
    HostWatch(asio::any_io_executor executor, HostSource source, const HostList& first,
              std::function<bool(const std::string&)> has_agent,
              std::function<void(const HostChanges&)> apply);

    void start() { tasks_.spawn(run()); }
    void stop() noexcept;  ///< the command that runs is killed, too
    asio::awaitable<void> join();

private:
    asio::awaitable<void> run();
    asio::awaitable<void> wait();
    asio::awaitable<void> wait_for_file();
    asio::awaitable<Result<HostList>> list();
    asio::awaitable<Result<std::string>> run_command(transport::Process& process);
    void tell_errors(transport::Process& process);

    asio::any_io_executor executor_;
    HostSource source_;
    HostListings listings_;
    std::function<bool(const std::string&)> has_agent_;
    std::function<void(const HostChanges&)> apply_;
    Timer timer_;
    asio::posix::stream_descriptor
        file_events_;  ///< of the folder of the file; closed: there are none
    std::unique_ptr<transport::Process>
        process_;  ///< that runs now, or could not be ended, as on a file system that hangs
    Deadline last_run_{};
    std::string told_;  ///< what the command has last written to standard error
    bool stopped_ = false;
    TaskGroup tasks_;
};

}  // namespace dtrun::discovery
