#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "launcher/head/job.h"
#include "launcher/head/job_inspector.h"
#include "launcher/head/stop_deadlines.h"
#include "launcher/output/output.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/router.h"

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dtrun::head {

/// Passes the ranks' output from their agents to the Output and to who looks on, and credit for it back to the
/// agents; at the end, writes the report.
///
/// Thread: the loop's. Lifetime: what it was given outlives it.
class JobOutput {
public:
    /// \param reader_gone  called when the reader of standard output or standard error is gone
    JobOutput(asio::any_io_executor executor, const plan::JobSpec& spec, output::Output& output,
              Hosts& hosts, StopDeadlines& stop_deadlines, JobInspector& inspector,
              Router<HostId>& router, std::function<void()> reader_gone);

    void finish(plan::SlotId rank, Stream stream);
    void message(std::string_view lines) { output_.message(lines); }
    /// Shows ranks with the numbers that they have now.
    void renumber() { output_.set_numbers(hosts_.numbers()); }
    /// The job has got more places for ranks. \param first  the first of them
    void add_slots(plan::SlotId first);
    /// Unfinished lines of the host's ranks are shown: it is lost.
    void host_gone(HostId host);
    /// Why all ranks are started again.
    void tell_restart(const report::JobOutcome& because);
    void begin_attempt(std::uint32_t attempt) { output_.begin_attempt(static_cast<int>(attempt)); }

    /// Lets agents send as many bytes as have been written. To be called when Output asks for it.
    void return_credits();
    /// Returns when everything was written, or when wake() is called and `hurry` is set.
    asio::awaitable<void> drain(const bool& hurry);
    void wake() { idle_.cancel(); }
    bool is_disk_silent() const { return output_.is_disk_silent(); }
    /// Why the job has failed, for the user; empty if it has not.
    std::string report_text(const report::JobOutcome& outcome) const;
    /// The same for programs, whether it has failed or not: report::outcome_json().
    boost::json::object outcome_json(const report::JobOutcome& outcome) const;
    /// Shows report_text(), on a terminal without what stands there already, and ends the Output.
    /// \return the exit status if the job itself has succeeded
    int report(const report::JobOutcome& outcome, const std::string& text,
               std::chrono::milliseconds limit);

private:
    Result<void> add(HostId host, std::string_view payload);
    std::vector<std::string> tail(plan::SlotId rank) const;
    void show(const report::JobOutcome& outcome, const std::string& text);
    void watch_folds();
    void failed(Error failure);

    const plan::JobSpec& spec_;
    output::Output& output_;
    Hosts& hosts_;
    StopDeadlines& stop_deadlines_;
    JobInspector& inspector_;
    std::function<void()> reader_gone_;
    Timer folds_;  ///< runs while lines wait for equal ones
    bool folds_run_ = false;
    Timer idle_;                         ///< cancelled when the output may be idle
    int exit_code_ = 0;                  ///< of ours, if the job itself succeeds
    std::vector<std::string> failures_;  ///< shown by report()
};

}  // namespace dtrun::head
