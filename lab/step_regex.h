#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
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

    /// What programs usually print: as the MNIST examples of PyTorch and Horovod, "Train Epoch: 1 [640/30000", and bars of
    /// progress, of tqdm and of Keras, "12/469 [====>". They have steps. Each finds nothing in most lines within little time.
    static std::span<const StepRegex> usual();

    /// The number in a line, whose commas between digits are passed over; nothing if there is none.
    std::optional<double> find(std::string_view line) const;
    Unit unit() const { return unit_; }

private:
    struct Compiled;

    std::shared_ptr<const Compiled> compiled_;
    std::string_view sign_;  ///< every line in which it finds something has this; empty: any may
    std::size_t group_ = 1;
    Unit unit_ = Unit::seconds;
};

/// How far a bar of progress is, in steps; nothing: the line is none. A bar is drawn again and again, as a line each time.
std::optional<double> bar_position(std::string_view line);

/// Whether a line speaks of a validation or a test.
bool speaks_of_test(std::string_view line);

/// How a program's output tells how accurate its network is: --accuracy-regex of `dtrun bench`.
class AccuracyRegex {
public:
    /// An ECMAScript regular expression whose first group has the number. Errc: invalid_input (no such expression,
    /// no group)
    static Result<AccuracyRegex> parse(std::string_view text);
    /// "Accuracy: 97.5%", "accuracy: 9750/10000 (98%)", "val_acc=0.975", "Acc@1 76.1", "accuracy on the test images: 97 %", in
    /// any case. One that is said to be of a test goes before others; those are not taken from a line that speaks of training,
    /// nor from a bar of progress unless it speaks of a test.
    static const AccuracyRegex& usual();

    /// The accuracy in a line, 0..1: a part of something ("9750/10000"), or a percentage if '%' is behind it or it is
    /// above 1; nothing if there is none.
    std::optional<double> find(std::string_view line) const;

private:
    struct Compiled;

    /// \throws std::regex_error
    static AccuracyRegex of(std::initializer_list<std::string_view> texts);

    std::shared_ptr<const Compiled> compiled_;
    bool is_usual_ = false;
};

}  // namespace dtrun::lab
