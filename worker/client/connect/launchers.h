#pragma once

#include "worker/client/connect/outcome.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace dtrun::embedded {

using Environment = std::map<std::string, std::string, std::less<>>;

enum class Launcher { none, agent, daemon, slurm, open_mpi, pmi, torchrun };

/// What dtrun_launcher() says.
const char* launcher_name(Launcher launcher);

/// Where a process stands among the ranks; DTRUN_UNKNOWN for what the launcher does not say.
struct RankInfo {
    std::string job;
    std::string host_name;
    std::uint64_t generation = 0;
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::uint32_t local_rank = DTRUN_UNKNOWN;
    std::uint32_t local_size = DTRUN_UNKNOWN;
    std::uint32_t cross_rank = DTRUN_UNKNOWN;
    std::uint32_t cross_size = DTRUN_UNKNOWN;
    std::uint32_t node_rank = DTRUN_UNKNOWN;
    std::uint32_t node_count = DTRUN_UNKNOWN;
};

/// A `dtrun serve` daemon and the job in it, as the variables name them.
struct DaemonAddress {
    std::string host;  ///< name or numeric address
    std::string port;
    std::string job_name;
    std::string secret_file;  ///< this or `secret_fd`
    int secret_fd = -1;
    std::uint32_t ranks_min = 0;  ///< 0: not said
    std::uint32_t ranks_max = 0;
    std::uint32_t timeout_ms = 60'000;  ///< for a lost connection to come back
};

/// A step of Slurm that has more than one rank and no daemon: its ranks meet by themselves.
struct SlurmStep {
    std::string cluster;  ///< SLURM_CLUSTER_NAME
    std::string id;       ///< job and step, such as "17.0"
    std::string nodes;    ///< SLURM_STEP_NODELIST, as it is
    std::string node;     ///< SLURMD_NODENAME; empty: not said
    std::uint32_t ranks = 0;
    std::string secret_file;   ///< DTRUN_SECRET_FILE; empty: MUNGE is used
    std::string munge_socket;  ///< DTRUN_MUNGE_SOCKET; empty: MUNGE's own
};

struct Surroundings {
    Launcher launcher = Launcher::none;
    RankInfo info;                        ///< agent, daemon: only what is to be asked for
    std::string socket;                   ///< agent: value of DTRUN_SOCKET
    bool elastic = false;                 ///< agent: the job is elastic
    std::optional<DaemonAddress> daemon;  ///< who hands out ranks, or is the store of another's
    std::optional<SlurmStep> step;
    std::string steps_file;  ///< DTRUN_STEPS_FILE; empty: nobody measures steps
};

/// Reads off the environment who has started this process; docs/CLIENT.md lists the variables.
/// Failures: DTRUN_INVALID, naming the variable
Outcome<Surroundings> find_launcher(const Environment& environment);

}  // namespace dtrun::embedded
