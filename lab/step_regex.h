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
        steps,               ///< so many so far: what it takes is told by when it is printed
        samples,             ///< so many of this rank so far, likewise
    };

    /// An ECMAScript regular expression whose group has the number. The group's name is the unit: (?<ms>...) or,
    /// as Python writes it, (?P<ms>...); one without a name has seconds.
    /// Errc: invalid_input (no such expression, no group, or several that could be meant)
    static Result<StepRegex> parse(std::string_view text);

    /// What the MNIST examples of PyTorch and Horovod print, and what is made of them: "Train Epoch: 1 [640/30000".
    static const StepRegex& usual();

    /// The number in a line, whose commas between digits are passed over; nothing if there is none.
    std::optional<double> find(std::string_view line) const;
    Unit unit() const { return unit_; }

private:
    struct Compiled;

    std::shared_ptr<const Compiled> compiled_;
    std::size_t group_ = 1;
    Unit unit_ = Unit::seconds;
};

/// How a program's output tells how accurate its network is: --accuracy-regex of `dtrun bench`.
class AccuracyRegex {
public:
    /// An ECMAScript regular expression whose first group has the number. Errc: invalid_input (no such expression,
    /// no group)
    static Result<AccuracyRegex> parse(std::string_view text);
    /// "Accuracy: 97.5%", "accuracy: 9750/10000 (98%)", "val_acc=0.975", "Acc@1 76.1", in any case; not in a line
    /// that speaks of training.
    static const AccuracyRegex& usual();

    /// The accuracy in a line, 0..1: a part of something ("9750/10000"), or a percentage if '%' is behind it or it is
    /// above 1; nothing if there is none.
    std::optional<double> find(std::string_view line) const;

private:
    struct Compiled;

    std::shared_ptr<const Compiled> compiled_;
    bool is_usual_ = false;
};

}  // namespace dtrun::lab
