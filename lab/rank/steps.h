#pragma once

#include "lab/records.h"
#include "lab/step_regex.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace dtrun::lab::rank {

/// What a rank's program has marked in the file of DTRUN_STEPS_FILE, lines "SOURCE STEP NANOSECONDS" of the
/// monotonic clock, and what dtrun.torch says beside them ("samples N", "compression FORMAT"). Its own calls of progress() go before dtrun.torch's steps; a step is what lies between two
/// marks, or a part of that if several steps do.
StepsRecord steps_of_marks(std::string_view marks);

/// A number in a program's output.
struct Printed {
    double value;
    std::int64_t ns;  ///< when it was heard, of the monotonic clock
};

/// What it has printed, in the order and in the unit in which it has.
StepsRecord steps_of_output(StepRegex::Unit unit, std::span<const Printed> printed);

/// Adds the accuracies that a program has printed as one epoch after the other, each as long as it took since its
/// first step.
void add_accuracies(StepsRecord& record, std::span<const Printed> accuracies);

/// The median of values, without the first `kFirstSteps`, or the first half if there are few; kUnknown: there is
/// none.
inline constexpr std::size_t kFirstSteps = 5;
double median_of_steps(std::span<const double> values);

}  // namespace dtrun::lab::rank
