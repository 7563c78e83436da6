#pragma once

#include "base/clock.h"
#include "base/numbered.h"
#include "launcher/plan/job_plan.h"
#include "launcher/transport/agent_file.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::head {

/// Groups the hosts on which Slurm starts agents, with one `srun` for each group. All hosts are one
/// group, but components of a heterogeneous job are apart, since only one of them would get srun's
/// standard input, and each host is alone where nodes have different numbers of GPUs, for which one
/// step cannot ask.
/// \return indexes into spec.hosts
std::vector<std::vector<HostId>> step_groups(const plan::JobSpec& spec);

/// `srun` with one task on each of `hosts`, which runs `command` under /bin/sh.
std::vector<std::string> srun_command(const plan::JobSpec& spec, std::span<const HostId> hosts,
                                      const std::string& command);

/// Slurm's short form of a number for each node: "4(x2),3".
std::string tasks_per_node(std::span<const int> counts);

/// The command of each task. All tasks read the same standard input and write the same output, so
/// every line of theirs begins with "@<node> ":
///
///     @n1 dtrun-agent-found              it has the agent (beside dtrun, in its cache, installed)
///     @n2 dtrun-agent-wanted x86_64 gzip n2.77
///                                        it has not, unpacks that, and was first in its home
///     @n2 dtrun-agent-stored             it has read all that follows, and stored what it lacks
///
/// They wait for "<bytes>", and for each CPU that lacks the agent " <CPU> <announcement>", and all these agents
/// themselves, one behind the other. Who has one skips them, and so does who was not first in its home. Then, and at once
/// if nobody lacks the agent, a line "go" has them become the agent.
/// \param copying  another word for each command: by it hosts find out who is first in a home
std::string node_agent_command(const transport::AgentFile& agent, const std::string& copying);

/// A line of a task.
struct NodeLine {
    std::string_view node;
    std::string_view text;
};
std::optional<NodeLine> parse_node_line(std::string_view line);

/// Why agents of a step are gone, as far as srun has told.
struct StepEnding {
    /// What is known, the vaguest first: tasks were killed, srun gives up the step, Slurm tells why.
    enum class How : std::uint8_t { unknown, killed, aborted, cancelled };
    How how = How::unknown;
    std::string text{};  ///< "Slurm has cancelled step 27.0 due to time limit"; empty: unknown
};

/// Reads that from what srun has printed. Which of its lines come depends on who of the step is first to end.
StepEnding step_ending(std::string_view said);

/// The strongest of srun's words about all steps of a job, and of equal ones the last, until an elastic job has gone on
/// without the agents.
class StepEndings {
public:
    /// A job that has gone on for so long does not end because of what has ended these.
    static constexpr std::chrono::seconds kOutlived{30};

    void hear(std::string_view said, Deadline now);
    void job_runs(Deadline now);
    const std::string& text() const { return ending_.text; }  ///< as StepEnding's

private:
    StepEnding ending_;
    Deadline heard_{};
};

}  // namespace dtrun::head
