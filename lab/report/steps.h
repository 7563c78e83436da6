#pragma once

#include "base/result.h"
#include "lab/records.h"

#include <span>
#include <string_view>

namespace dtrun::lab {

/// Adds to a program's record how long its steps took: the mean of the ranks that told of any, and its throughput
/// by that or as they told it. What the record has already stays.
/// \param regex  --step-regex, for errors; empty: none
/// \return invalid_input: no rank has told of a step, or they do not agree on how many there were
Result<void> add_steps(TrainRecord& run, std::span<const StepsRecord> ranks,
                       std::string_view regex);

}  // namespace dtrun::lab
