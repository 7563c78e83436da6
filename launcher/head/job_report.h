#pragma once

#include "base/result.h"
#include "launcher/plan/options.h"
#include "launcher/report/report_file.h"
#include "launcher/watch/event.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace dtrun::head {

/// --report: all that is known of a job when it has ended, as a JSON document in a file; docs/JOBS.md has its members.
class JobReport final : public watch::EventListener {
public:
    /// Whether it will be possible to write it. \param job  its id
    /// Errc: invalid_input, internal; names the flag
    static Result<JobReport> open(const plan::Options& options, const std::string& job);

    /// Keeps what goes wrong on the way, and when ranks begin anew.
    void happened(const watch::Event& event) override;

    /// \param job  its view, with what report::outcome_json() knows
    /// \param limit  for the disk to take it
    /// \return dtrun's exit status: `status`, unless that is 0 and the document is not written
    int write(int status, boost::json::object job, std::chrono::milliseconds limit) const;

    /// The same of a job that has not begun. \param why  what the user was told
    void refuse(int status, std::string_view why) const;

private:
    explicit JobReport(const plan::HistoryOptions& history) : history_(history) {}

    plan::HistoryOptions history_;
    boost::json::array events_;
    std::shared_ptr<const report::ReportFile>
        file_;  ///< shared with a thread that may be left behind
};

/// Has the document of --report, if it was asked for, say why there is no job.
void report_refusal(const plan::Options& options, int status, std::string_view why);

}  // namespace dtrun::head
