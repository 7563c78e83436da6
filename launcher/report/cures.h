#pragma once

#include "launcher/plan/job_plan.h"
#include "rendezvous/wire/rank_messages.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::report {

/// A rank that has failed, and what it had written last.
struct FailedRank {
    const Exited& exited;
    plan::SlotId slot;
    std::span<const std::string> lines;  ///< of its standard error, oldest first
    bool is_explained = false;           ///< it is known who has ended it
};

/// What helps against a failure: a row of cures.def that is true of the rank.
struct Cure {
    std::string_view name;  ///< of the row
    std::string text;       ///< one line
    std::string sign;       ///< the rank's line that it goes by; empty: none
};

/// The cure for the last line of the rank that has one, else for how it has ended.
/// Nothing: what is wrong is not in the table, or its cure was taken already.
std::optional<Cure> find_cure(const FailedRank& rank, const plan::JobSpec& spec);

}  // namespace dtrun::report
