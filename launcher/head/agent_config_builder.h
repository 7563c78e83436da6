#pragma once

#include "base/ids.h"
#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "launcher/plan/job_plan.h"
#include "rendezvous/wire/start_messages.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::head {

/// The id of a job, and the secret that proves membership in it.
struct JobCredentials {
    JobId id = random_job_id();
    Secret secret = Secret::random();
};

/// Where the head's rendezvous server listens.
struct ServerPlace {
    std::vector<std::string> addresses;  ///< of this machine, that hosts may try; numeric
    std::uint16_t port = 0;
    std::string store_socket{};      ///< of AgentConfig, for this machine's agents
    std::uint32_t store_by_tcp = 0;  ///< of AgentConfig, for the others
};

/// Makes the configurations that agents read from their standard input.
///
/// Lifetime: everything it was given outlives it.
class AgentConfigBuilder {
public:
    AgentConfigBuilder(const plan::JobSpec& spec, const JobCredentials& credentials,
                       const Hosts& hosts, ServerPlace server);

    /// Puts an address first: that by which one host sees us is the best guess for the others, too.
    void prefer(const std::string& address);

    /// A frame for one host; to be wiped after use. Its relay, if it has one, must have joined.
    Bytes for_host(HostId host, std::uint64_t agent) const;
    /// One frame for all hosts that Slurm starts: each agent takes its own part of it.
    Bytes for_all_nodes() const;

private:
    /// What is made of the list of hosts.
    struct HostLists {
        std::size_t hosts = 0, ranks = 0;  ///< of the job, when it was made
        std::string nodelist, tasks_per_node;
        int ranks_most = 0;  ///< on one host
    };

    const HostLists& lists() const;
    AgentConfig common() const;
    void add_looks(AgentConfig& config) const;
    JobId mpi_job() const;

    const plan::JobSpec& spec_;
    const JobCredentials& credentials_;
    const Hosts& hosts_;
    ServerPlace server_;
    std::vector<JobProgram> programs_;
    mutable HostLists lists_;  ///< of all hosts, and made once for all of them
};

}  // namespace dtrun::head
