#pragma once

#include "launcher/history/job_entry.h"

#include <string>
#include <utility>
#include <vector>

// What is known of jobs that have ended, as text. Pure; words of others are shown so that no terminal obeys them.

namespace dtrun::history {

/// A record, and whether its dtrun still runs.
struct Known {
    JobEntry entry;
    Life life = Life::gone;
};

/// "exit 3, rank_failed", "ended well", "not known", …
std::string ending_text(const Known& job);

/// `dtrun jobs --all`: a line for each, in this order. \param columns  longer ones are cut; 0: none
std::string history_table(const std::vector<Known>& jobs, std::size_t columns);

/// `dtrun jobs --all JOB`: all that is known of one, with its report.
std::string history_details(const Known& job);

}  // namespace dtrun::history
