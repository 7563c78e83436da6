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

#include <cstdint>
#include <map>
#include <optional>
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
    Lookout(const asio::any_io_executor& executor, const plan::JobSpec& spec, Hosts& hosts,
            output::StdinPump& input);

    /// From now on answers go over this server, which outlives it.
    void serve(control::ControlServer& server) { server_ = &server; }

    // What the head sees.
    void generation_begins() { endings_.clear(); }
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

    asio::awaitable<void> join();

    // What commands say.
    void asked(control::CallerId caller, const AskJob& ask) override;
    void typed(control::CallerId caller, std::string_view bytes) override;
    void resized(control::CallerId caller, const TerminalSize& size) override;
    void left(control::CallerId caller) override;

private:
    /// A command that is attached to a rank.
    struct Watcher {
        plan::PlannedRank rank{};
        std::uint64_t dropped_bytes = 0;  ///< of output, while it did not read
        bool waits_for_room = false;      ///< for its input
    };
    /// What is known of the end of a rank.
    struct Ending {
        bool out = false, err = false;  ///< of its streams
        std::optional<int> code{};      ///< it has ended with this
    };

    asio::awaitable<void> answer_stacks(control::CallerId caller, AskJob ask);
    void attach(control::CallerId caller, const AskJob& ask);
    void refuse(control::CallerId caller, const std::string& why);
    void show(plan::PlannedRank rank, const OutputView& output);
    void answer_in_pieces(control::CallerId caller, const std::vector<std::string>& lines);
    void finish_if_ended(plan::PlannedRank rank);
    bool has_terminal(plan::PlannedRank rank) const;
    bool takes_input(plan::PlannedRank rank) const;
    bool can_type(plan::PlannedRank rank) const;
    std::string summary(const Survey& survey) const;

    const plan::JobSpec& spec_;
    Hosts& hosts_;
    output::StdinPump& input_;
    StackSurvey survey_;
    control::ControlServer* server_ = nullptr;
    std::map<control::CallerId, Watcher> watchers_;
    std::map<plan::PlannedRank, Ending> endings_;  ///< in this generation
    TaskGroup tasks_;
};

}  // namespace dtrun::head
