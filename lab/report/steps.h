#pragma once

#include "base/result.h"
#include "lab/records.h"

#include <span>
#include <string_view>

namespace dtrun::lab {

/// Adds to a program's record how long its steps took: the mean of the ranks that told of any, and its throughput
/// by that or as they told it. What the record has already stays.
/// So is what its ranks have printed of its accuracy, and how many samples a step has.
/// \param regex  --step-regex, for errors; empty: none
/// \return invalid_input: no rank has told of a step, or they do not agree on how many there were
Result<void> add_steps(TrainRecord& run, std::span<const StepsRecord> ranks,
                       std::string_view regex);

/// Whether all ranks that tell of steps had their gradients compressed as dtrun.torch was asked to.
/// \param wanted  a format; empty: nothing was asked for
/// \return invalid_input: another library reduces them, or the program compresses itself
Result<void> check_compression(std::span<const StepsRecord> ranks, std::string_view wanted);

/// "weak" if each rank of a run has as many samples as the one alone has, else "strong". The run of a single rank is
/// among `known`, or nothing can be said.
std::string scaling_by_batch(const TrainRecord& run, std::span<const TrainRecord> known);

}  // namespace dtrun::lab
