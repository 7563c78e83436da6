#pragma once

#include "launcher/output/output_backlog.h"
#include "rendezvous/tree.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace dtrun::head {

/// Who does not answer the order to end its ranks, at the end of the job or for another generation: a
/// pure state machine. No sockets, no clock.
class AnswerWatch {
public:
    AnswerWatch(const Tree& tree, std::size_t hosts) : tree_(tree), hosts_(hosts) {}

    output::OutputBacklog& output(std::uint32_t host) { return hosts_[host].output; }

    /// All were told to end their ranks, for this generation.
    void pause(std::uint64_t generation, std::chrono::milliseconds grace, Deadline now);
    void paused(std::uint32_t host, std::uint64_t generation);
    /// All were told to end; the answer to that is for the caller to know.
    void stop(std::chrono::milliseconds grace, Deadline now);

    /// Hosts that have not answered in time, among others that may have gone.
    std::vector<std::uint32_t> late(Deadline now) const;

    /// After the grace: for KILL to work, and for the news of it.
    static constexpr std::chrono::seconds kLimit{8};

private:
    struct Host {
        output::OutputBacklog output;
        std::uint64_t paused = 0;  ///< for this generation
    };
    const Tree& tree_;
    std::vector<Host> hosts_;
    std::uint64_t pausing_ = 0;  ///< for this generation; 0: nobody is, or all end
    std::optional<Deadline> by_;
};

}  // namespace dtrun::head
