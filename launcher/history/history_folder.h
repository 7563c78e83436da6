#pragma once

#include "base/result.h"
#include "launcher/history/job_entry.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::history {

/// Where records of jobs are: dtrun/jobs in XDG_STATE_HOME, else in ~/.local/state; empty: neither is an absolute path.
std::string history_folder(std::string_view state_home, std::string_view home);

/// Makes it, for its user alone. Errc: denied (it is somebody else's, a link, or lets others in), internal
Result<void> make_history_folder(const std::string& folder);

/// "; none can be kept in FOLDER: Read-only file system" where that is so, else "".
std::string why_none_is_kept(const std::string& folder);

/// What files of a job are called there: in the order of their time, "20261128-003012.250-0123…".
std::string stem_of(std::string_view job, std::int64_t time_ns);
inline constexpr std::string_view kRecordSuffix = ".job";
inline constexpr std::string_view kLogSuffix = ".log";

/// The records that can be read, the newest first. \param newest_max  not more than so many
std::vector<JobEntry> read_history(const std::string& folder, std::size_t newest_max = SIZE_MAX);

/// The newest record that a person means: by the job's name, its id or a begin of that, or by its log alone for what
/// is not found so. Empty: the newest of all. Errc: invalid_input (none, or several ids begin so)
Result<JobEntry> find_entry(const std::string& folder, std::string_view word);

/// Whether the dtrun of a job runs. If it does not, and had not said how the job has ended when the record was read, that is
/// read once more.
Life settle(JobEntry& entry, const ProcessMark& here);

/// How much is kept.
struct Bounds {
    std::int64_t age_max_ns = 30LL * 24 * 3600 * 1'000'000'000;
    std::size_t records_max = 1'000;
    std::uint64_t bytes_max = 1ull << 30;
};

/// Removes what is too old, and the oldest of what is too much, but nothing of a job that may still run.
void tidy(const std::string& folder, const Bounds& bounds, std::int64_t now_ns);

}  // namespace dtrun::history
