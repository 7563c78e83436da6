#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace dtrun::lab {

/// How a program's output tells what a step takes: --step-regex of `dtrun bench`.
class StepRegex {
public:
    enum class Unit : std::uint8_t {
        seconds,
        ms,
        us,
        steps_per_s,
        samples_per_s,       ///< of all ranks together
        rank_samples_per_s,  ///< of the rank that says so
    };

    /// An ECMAScript regular expression whose group has the number. The group's name is the unit: (?<ms>...) or,
    /// as Python writes it, (?P<ms>...); one without a name has seconds.
    /// Errc: invalid_input (no such expression, no group, or several that could be meant)
    static Result<StepRegex> parse(std::string_view text);

    /// The number in a line, whose commas between digits are passed over; nothing if there is none.
    std::optional<double> find(std::string_view line) const;
    Unit unit() const { return unit_; }

private:
    struct Compiled;

    std::shared_ptr<const Compiled> compiled_;
    std::size_t group_ = 1;
    Unit unit_ = Unit::seconds;
};

}  // namespace dtrun::lab
