#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "launcher/control/control_server.h"
#include "launcher/head/agent_survey.h"
#include "launcher/head/hosts.h"
#include "launcher/head/job_record.h"
#include "launcher/inspect/stacks_text.h"
#include "launcher/output/stdin_pump.h"
#include "launcher/plan/job_plan.h"
#include "launcher/watch/rank_tails.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/router.h"

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::head {

/// The answers of hosts to one StackRequest.
struct Survey {
    inspect::FoldedStacks stacks;
    std::uint32_t signalled = 0;
    std::vector<HostId> silent;  ///< hosts that have not answered in time
};

/// Answers the commands that look into the job while it runs, such as `dtrun stacks`, `attach` and `top`; and
/// has stacks for the report of a job that hangs.
///
/// Thread: the loop's. Lifetime: what it was given outlives it; join() before destruction, unless the
/// process ends.
class JobInspector final : public control::ControlEvents {
public:
    /// \param waiting  says who waits for what
    /// \param end      ends the job, as if dtrun had got this signal
    JobInspector(const asio::any_io_executor& executor, const plan::JobSpec& spec, Hosts& hosts,
                 output::StdinPump& input, JobRecord& record, Router<HostId>& router,
                 std::function<std::vector<std::string>()> waiting, std::function<void(int)> end);

    /// From now on answers go over this server, which outlives it.
    void serve(control::ControlServer& server) { server_ = &server; }

    // What the head sees.
    void generation_begins() {
        endings_.clear();
        heard_at_ = Clock::now();
    }
    void output(plan::SlotId rank, const OutputView& output) {
        heard_at_ = Clock::now();
        if (!watchers_.empty()) show(rank, output);
        if (tails_) tails_->add(rank, output.data);
    }
    void output_ended(plan::SlotId rank, Stream stream);
    void rank_ended(plan::SlotId rank, const Exited& exited);
    void input_taken();  ///< there may be room for more input
    void host_gone(HostId host);
    void job_ended();  ///< it is in the record

    /// From now on the last lines of each rank are kept.
    void keep_tails();
    std::string tail(Rank rank) const;

    /// What is known of the job; with what its ranks use, as far as hosts tell within a time.
    asio::awaitable<boost::json::object> measured_view(std::chrono::milliseconds limit);

    /// Where all ranks are, as far as can be told within a time, which is more than half a second: for a report.
    asio::awaitable<std::vector<std::string>> stacks_for_report(std::chrono::milliseconds limit);
    /// How long no rank has printed anything, in this generation.
    Clock::duration silence() const { return Clock::now() - heard_at_; }

    asio::awaitable<void> join();

    // What commands say.
    void asked(control::CallerId caller, const ControlRequest& ask) override;
    void typed(control::CallerId caller, std::string_view bytes) override;
    void resized(control::CallerId caller, const TerminalSize& size) override;
    void left(control::CallerId caller) override;

private:
    /// A command that is attached to a rank.
    struct Watcher {
        plan::SlotId rank{};
        std::uint64_t dropped_bytes = 0;  ///< of output, while it did not read
        bool waits_for_room = false;      ///< for its input
    };
    /// What is known of the end of a rank.
    struct Ending {
        bool out = false, err = false;  ///< of its streams
        std::optional<int> code{};      ///< it has ended with this
    };

    void measured(HostId host, UsageReport report);
    asio::awaitable<void> answer_stacks(control::CallerId caller, ControlRequest ask);
    asio::awaitable<void> answer_view(control::CallerId caller, ControlRequest ask);
    asio::awaitable<Survey> take_stacks(StackRequest request);
    void add_last_lines(boost::json::object& view) const;
    void attach(control::CallerId caller, const ControlRequest& ask);
    void refuse(control::CallerId caller, const std::string& why);
    void show(plan::SlotId rank, const OutputView& output);
    void answer_in_pieces(control::CallerId caller, const std::vector<std::string>& lines);
    void finish_if_ended(plan::SlotId rank);
    bool has_terminal(plan::SlotId rank) const;
    bool takes_input(plan::SlotId rank) const;
    bool can_type(plan::SlotId rank) const;
    std::string summary(const Survey& survey) const;
    std::string silent_names(const Survey& survey) const;
    std::map<Rank, std::string> ranks_of_job() const;
    std::vector<std::string> all_lines(const Survey& survey) const;

    const plan::JobSpec& spec_;
    Hosts& hosts_;
    output::StdinPump& input_;
    JobRecord& record_;
    std::function<std::vector<std::string>()> waiting_;
    std::function<void(int)> end_;
    AgentSurvey<StackRequest, StackReport> stack_survey_;
    AgentSurvey<UsageRequest, UsageReport> usage_survey_;
    bool measuring_ = false;
    Deadline measured_at_{};
    Deadline heard_at_{};  ///< when the ranks have printed something, or have started
    Timer measured_;       ///< cancelled when hosts have answered
    control::ControlServer* server_ = nullptr;
    std::optional<watch::RankTails> tails_;
    std::map<control::CallerId, Watcher> watchers_;
    std::set<control::CallerId> mourners_;    ///< commands that want to know how the job ends
    std::map<plan::SlotId, Ending> endings_;  ///< in this generation
    TaskGroup tasks_;
};

}  // namespace dtrun::head
