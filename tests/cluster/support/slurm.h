#pragma once

#include "tests/cluster/support/cluster.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cluster {

/// A real Slurm on a cluster: slurmctld on head, slurmd on the first four hosts, which are its
/// nodes and of unequal size:
///
///     s1  4 processors  4 GPUs        s3  2 processors
///     s2  8 processors  4 GPUs        s4  8 processors  2 GPUs
///
/// Its commands need nothing special: cluster.run("head", {"srun", "-N4", "hostname"}), as root or
/// as dtuser. Cluster::reset() ends the jobs' processes but not Slurm's daemons, which do
/// not count as processes of the hosts.
///
/// Thread: any one. Lifetime: `cluster` outlives it; the daemons live as long as the hosts. Errors
/// are std::runtime_error. Where Slurm is not installed the test program is skipped, see skip().
class Slurm {
public:
    /// Starts daemons that are not running, cancels all jobs, resumes drained and dead nodes and
    /// waits until all are idle. Each test makes one, after Cluster::shared(4).
    explicit Slurm(Cluster& cluster);

    /// Submits a batch script, "#!/bin/sh\n...", from head. It runs in Cluster::scratch() if
    /// `how.cwd` says nothing else. \param options  of sbatch \return the job's id
    int sbatch(std::string_view script, std::vector<std::string> options = {}, RunOptions how = {});

    /// "PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT",
    /// "NODE_FAIL", …; of a heterogeneous job, its first component's.
    std::string state(int job) const;

    struct JobEnd {
        std::string state;
        int exit_code = 0;  ///< exit status of the batch script
        int signal = 0;     ///< signal that ended the batch script; 0: none
        std::string out, err;
    };
    /// Waits until a job of sbatch() has ended on all its nodes.
    /// \throws std::runtime_error  it takes longer than `timeout`
    JobEnd wait_end(int job, milliseconds timeout = milliseconds(60'000)) const;
    void wait_running(int job, milliseconds timeout = milliseconds(10'000)) const;
    /// Makes the job exceed its time limit now: it can start no more steps, and slurmctld, which
    /// checks every 30 s, ends it.
    void expire(int job);
    std::string out(int job) const;  ///< output so far
    std::string err(int job) const;

    void drain(std::string_view node);
    void resume(std::string_view node);
    /// The node's state in sinfo: "idle", "mixed", "allocated", "draining", "drained", "down", with
    /// a "*" behind it while the node does not answer. One that is cut off is "down*" 16 to 20 s
    /// later, and its jobs end 7 s after that.
    std::string node_state(std::string_view node) const;
    bool wait_node_state(std::string_view node, std::string_view state,
                         milliseconds timeout = milliseconds(30'000)) const;

    /// Stops slurmctld on head, slurmd elsewhere; jobs go on without it.
    void stop_daemon(std::string_view host);
    void start_daemon(std::string_view host);
    std::string logs() const;  ///< the ends of all daemons' logs, for messages

private:
    std::string script(std::vector<std::string> words) const;
    std::string ask(std::vector<std::string> argv) const;
    std::filesystem::path output(int job, std::string_view kind) const;

    Cluster& cluster_;
};

}  // namespace dtrun::cluster
