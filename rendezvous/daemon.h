#pragma once

#include "base/asio.h"
#include "base/task_group.h"
#include "rendezvous/link.h"
#include "rendezvous/pulse.h"
#include "rendezvous/served_job.h"
#include "rendezvous/server.h"
#include "rendezvous/state_db.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dtrun {

struct DaemonOptions {
    Secret secret;
    bool encrypt = false;
    std::chrono::milliseconds heartbeat_timeout{3'000};
    std::string state_directory;  ///< empty: nothing is kept
};

/// The rendezvous server for many jobs, alone: `dtrun serve`.
///
/// With a state directory, frames wait until what they tell of is on disk: one commit for everything
/// that came in one turn of the loop.
///
/// Thread: the executor's. Lifetime: the owner calls stop() and awaits join() before destruction.
class Daemon final : private Outbox {
public:
    Daemon(asio::any_io_executor executor, DaemonOptions options);

    /// Opens the state and goes on with its jobs. Errc: those of StateDb::open()
    Result<void> restore();
    /// As Server's.
    Result<std::uint16_t> listen(const std::vector<std::string>& addresses, std::uint16_t port);
    Result<std::uint16_t> adopt(int fd);

    /// Tells everybody, and ends; jobs that are kept on disk go on later.
    asio::awaitable<void> stop();

private:
    struct Port {
        Port(Connection connection, const JobId& job_) : link(std::move(connection)), job(job_) {}
        std::string peer, local;
        Link link;
        JobId job;
        bool entered = false;
    };
    struct Held {
        PortId port = 0;
        FrameType type{};
        Bytes payload;
    };

    void to_port(PortId port, FrameType type, std::string_view payload) override;
    void to_root(FrameType type, std::string_view payload) override;

    void admit(const JobId& job, Connection connection);
    asio::awaitable<void> run_port(PortId id);
    Result<void> on_frame(PortId id, Port& port, const FrameView& frame);
    Result<void> first_frame(PortId id, Port& port, const FrameView& frame);
    asio::awaitable<void> refuse(Port& port, std::string why);
    ServedJob* find_job(const JobId& id);
    ServedJob& job_for(const JobId& id, const std::string& name);
    ServedJob::Options job_options(const std::string& name);
    void changed(const JobId& job);
    static asio::awaitable<void> flush_port(std::shared_ptr<Port> port);
    void settle();
    void flush();
    void arm_timer();
    void beat();
    std::string status(const std::string& job_name) const;

    asio::any_io_executor executor_;
    DaemonOptions options_;
    std::unique_ptr<StateDb> db_;
    std::unique_ptr<Server> server_;
    std::map<JobId, std::unique_ptr<ServedJob>> jobs_;
    std::map<PortId, std::shared_ptr<Port>> ports_;  ///< shared with flush_port()
    PortId last_port_ = 0;
    std::vector<Held> held_;
    bool settle_soon_ = false;
    std::vector<JobId> touched_;  ///< that settle() will look at
    bool stopping_ = false;
    std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
    Pulse pulse_;
    asio::steady_timer timer_;  ///< of the jobs' deadlines
    asio::steady_timer settle_timer_;
    TaskGroup heart_;
    TaskGroup tasks_;  ///< one for each connection
};

}  // namespace dtrun
