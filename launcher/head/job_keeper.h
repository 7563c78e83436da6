#pragma once

#include "launcher/head/job_record.h"
#include "launcher/head/start_teller.h"
#include "launcher/history/record_writer.h"
#include "launcher/output/output_mux.h"
#include "launcher/plan/job_plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dtrun::head {

/// Keeps of a job what its user may want to see later: a record, and its output if it is detached. Where that cannot be
/// written, the job goes on.
///
/// Thread: the loop's. Lifetime: what it was given outlives it.
class JobKeeper {
public:
    JobKeeper(const plan::JobSpec& spec, StartTeller& teller, std::string job);

    /// Has the output kept, if it is to be, in a file of the history unless the user has named one.
    void keep_output(output::OutputOptions& options);
    /// Writes how the job begins, while others work. For a detached job it waits until that is done.
    void begin(const std::string& program);
    /// Writes how it has ended.
    void finish(int code, const JobRecord& record, std::chrono::milliseconds limit);

private:
    void warn(std::string_view text);

    const plan::JobSpec& spec_;
    const plan::HistoryOptions& asked_;
    StartTeller& teller_;
    const std::string job_;
    const std::int64_t started_ns_;
    std::string log_;  ///< where its output is; empty: it is not kept
    std::uint64_t log_kept_ = 0;
    bool home_answers_ = true;  ///< as far as is known
    std::string log_trouble_;   ///< why not all of it is kept
    std::unique_ptr<history::RecordWriter> record_;
};

}  // namespace dtrun::head
