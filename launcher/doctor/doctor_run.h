#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "launcher/doctor/doctor_report.h"
#include "launcher/head/login_starter.h"
#include "launcher/plan/job_plan.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/login_gate.h"
#include "rendezvous/doctor/probe_listener.h"
#include "rendezvous/wire/frame.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::doctor {

/// Examines all hosts of a plan: logs in, has an agent there tell what the host has, and has agents try to
/// reach each other. Each step is done on all hosts side by side, and has a limit of its own.
///
/// Thread: the loop's. Lifetime: what it was given outlives it; run() once.
class DoctorRun {
public:
    DoctorRun(asio::any_io_executor executor, const plan::JobSpec& spec,
              head::ChannelOpener& channels);

    asio::awaitable<DoctorReport> run();

private:
    /// A host whose agent is there.
    struct HostProbe {
        std::shared_ptr<transport::Channel> channel;
        std::string received{};  ///< of the agent's frames, and not yet used
    };
    using Work = std::function<asio::awaitable<void>(HostId)>;
    using Take = std::function<bool(const FrameView&)>;

    asio::awaitable<void> all_do(std::vector<HostId> hosts, Work work, unsigned at_once);
    asio::awaitable<void> work_off(std::vector<HostId>& left, const Work& work);
    asio::awaitable<void> log_in(HostId host);
    asio::awaitable<Result<void>> begin(HostId host, transport::LoginPass& pass);
    asio::awaitable<void> visit(HostId host);
    asio::awaitable<void> exchange_all();
    asio::awaitable<void> look_again(std::size_t from, std::size_t to);
    asio::awaitable<void> exchange(std::size_t from, std::size_t to);
    asio::awaitable<void> wait_for_facts(HostId host);
    asio::awaitable<void> end(HostId host);
    asio::awaitable<Result<void>> ask(HostId host, Bytes question, Take take, Deadline deadline);
    asio::awaitable<Result<void>> listen(HostId host, Take take, Deadline deadline);
    void take_facts(HostId host, std::vector<HostFact> facts);
    Result<bool> take_frames(HostId host, const Take& take);
    std::vector<HostId> well() const;
    HostReport& report(HostId host) { return found_.hosts[std::to_underlying(host)]; }

    asio::any_io_executor executor_;
    const plan::JobSpec& spec_;
    head::ChannelOpener& channels_;
    transport::AgentCopies copies_;
    transport::LoginGate gate_;
    std::string token_;
    std::unique_ptr<doctor::ProbeListener> home_;
    PerHost<HostProbe> probes_;
    DoctorReport found_;
    Deadline until_{};  ///< of the last steps
};

}  // namespace dtrun::doctor
