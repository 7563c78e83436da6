#pragma once

#include "lab/records.h"
#include "lab/step_regex.h"

#include <span>
#include <string_view>

namespace dtrun::lab::rank {

/// What a rank's program has marked in the file of DTRUN_STEPS_FILE, lines "SOURCE STEP NANOSECONDS" of the
/// monotonic clock. Its own calls of progress() go before dtrun.torch's steps; a step is what lies between two
/// marks, or a part of that if several steps do.
StepsRecord steps_of_marks(std::string_view marks);

/// What it has printed, in the order and in the unit in which it has.
StepsRecord steps_of_output(StepRegex::Unit unit, std::span<const double> values);

/// The median of values, without the first `kFirstSteps`, or the first half if there are few; kUnknown: there is
/// none.
inline constexpr std::size_t kFirstSteps = 5;
double median_of_steps(std::span<const double> values);

}  // namespace dtrun::lab::rank
