#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "launcher/control/control_server.h"
#include "launcher/head/hosts.h"
#include "launcher/head/stack_survey.h"
#include "launcher/output/stdin_pump.h"
#include "launcher/plan/job_plan.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::head {

/// Answers the commands that look into the job while it runs: `dtrun stacks` and `dtrun attach`; and has
/// stacks for the report of a job that hangs.
///
/// Thread: the loop's. Lifetime: what it was given outlives it; join() before destruction, unless the
/// process ends.
class Lookout final : public control::ControlEvents {
public:
    Lookout(asio::any_io_executor executor, const plan::JobSpec& spec, Hosts& hosts,
            output::StdinPump& input);

    /// From now on answers go over this server, which outlives it.
    void serve(control::ControlServer& server) { server_ = &server; }

    // What the head sees.
    void output(plan::PlannedRank rank, const OutputView& output) {
        if (!watchers_.empty()) show(rank, output);
    }
    void output_ended(plan::PlannedRank rank, Stream stream);
    void rank_ended(plan::PlannedRank rank, const Exited& exited);
    void input_taken();  ///< there may be room for more input
    void host_gone(HostId host) { survey_.host_gone(host); }
    void stacks_come(HostId host, Stacks stacks) { survey_.answered(host, std::move(stacks)); }

    /// Where all ranks are, as far as tools can tell within a time, for a report.
    asio::awaitable<std::vector<std::string>> stacks_for_report();

    void stop() noexcept { tasks_.stop(); }
    asio::awaitable<void> join();

    // What commands say.
    void asked(control::CallerId caller, const Ask& ask) override;
    void typed(control::CallerId caller, std::string_view bytes) override;
    void resized(control::CallerId caller, const TerminalSize& size) override;
    void left(control::CallerId caller) override;

private:
    /// A command that is attached to a rank.
    struct Watcher {
        plan::PlannedRank rank{};
        std::uint64_t dropped_bytes = 0;  ///< of output, while it did not read
        bool waits_for_room = false;      ///< for its input
        bool has_ended = false;           ///< the rank's output
        std::optional<int> code{};        ///< the rank has ended with this
    };

    asio::awaitable<void> answer_stacks(control::CallerId caller, Ask ask);
    void attach(control::CallerId caller, const Ask& ask);
    void refuse(control::CallerId caller, const std::string& why);
    void show(plan::PlannedRank rank, const OutputView& output);
    void finish_if_ended(control::CallerId caller, const Watcher& watcher);
    bool takes_input(plan::PlannedRank rank) const;
    std::string summary(const Survey& survey) const;

    asio::any_io_executor executor_;
    const plan::JobSpec& spec_;
    Hosts& hosts_;
    output::StdinPump& input_;
    StackSurvey survey_;
    control::ControlServer* server_ = nullptr;
    std::map<control::CallerId, Watcher> watchers_;
    TaskGroup tasks_;
};

}  // namespace dtrun::head
