#pragma once

#include "base/numbered.h"
#include "launcher/output/output_backlog.h"
#include "rendezvous/job/tree.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace dtrun::head {

/// Finds hosts that do not answer the order to end their ranks, at the end of the job or for
/// another generation: a pure state machine. No sockets, no clock.
class StopDeadlines {
public:
    StopDeadlines(const Tree& tree, std::size_t hosts) : tree_(tree), hosts_(hosts) {}

    void host_added() { hosts_.emplace_back(); }
    output::OutputBacklog& output(HostId host) { return hosts_[host].output; }
    /// A host has joined: it has nothing to end, and has sent nothing yet.
    void joined(HostId host) { hosts_[host] = Host{{}, pausing_}; }

    /// All hosts were told to end their ranks, for this generation.
    void pause(std::uint64_t generation, std::chrono::milliseconds grace, Deadline now);
    void paused(HostId host, std::uint64_t generation);
    /// All hosts were told to end. The caller itself knows which of them are done.
    void stop(std::chrono::milliseconds grace, Deadline now);

    /// This host alone was told to end, as the job goes on without it.
    void release(HostId host, std::chrono::milliseconds grace, Deadline now);

    /// Hosts that have not answered in time; hosts that are gone may be among them.
    std::vector<HostId> late(Deadline now) const;

    /// Time after the grace for SIGKILL to take effect and to be reported.
    static constexpr std::chrono::seconds kLimit{8};

private:
    struct Host {
        output::OutputBacklog output;
        std::uint64_t paused = 0;  ///< the generation for which its ranks have ended
        Deadline released_by = Deadline::max();
    };
    Deadline deadline_of(const Host& host) const;

    const Tree& tree_;
    PerHost<Host> hosts_;
    std::uint64_t pausing_ = 0;         ///< the generation for which ranks are to end; 0: none
    Deadline by_ = Deadline::max();     ///< of all hosts
    Deadline first_ = Deadline::max();  ///< nobody is late before
};

}  // namespace dtrun::head
