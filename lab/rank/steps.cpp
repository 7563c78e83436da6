#include "lab/rank/steps.h"

#include "base/strings.h"
#include "lab/names.h"
#include "lab/rank/timing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace dtrun::lab::rank {

namespace {

struct Mark {
    long long step, ns;
};

std::vector<Mark> marks_from(std::string_view marks, std::string_view source) {
    constexpr long long kMax = std::numeric_limits<long long>::max();
    std::vector<Mark> found;
    for (const std::string_view line : split(marks, '\n')) {
        const auto words = split(line, ' ');
        if (words.size() != 3 || words[0] != source) continue;
        const auto step = to_int(words[1], 0, kMax);
        const auto ns = to_int(words[2], 0, kMax);
        if (step && ns) found.push_back({*step, *ns});
    }
    return found;
}

/// What is said beside the marks: the last word behind a name.
std::string_view said_of(std::string_view marks, std::string_view name) {
    std::string_view said;
    for (const std::string_view line : split(marks, '\n')) {
        const auto words = split(line, ' ');
        if (words.size() == 2 && words[0] == name) said = words[1];
    }
    return said;
}

/// Of numbers that grow, by when they were heard; where one falls, an epoch has begun.
StepsRecord steps_of_counts(StepRegex::Unit unit, std::span<const Printed> printed) {
    const bool are_samples = unit == StepRegex::Unit::samples;
    StepsRecord record;
    std::vector<double> values;  // milliseconds of a step, or samples per second
    for (std::size_t i = 1; i < printed.size(); ++i) {
        const double more = printed[i].value - printed[i - 1].value;
        const auto ns = static_cast<double>(printed[i].ns - printed[i - 1].ns);
        if (!(more > 0) || !(ns > 0)) continue;
        values.push_back(are_samples ? more / ns * 1e9 : ns / 1e6 / more);
        record.steps += are_samples ? 1 : static_cast<std::uint64_t>(more);
    }
    if (values.empty()) return record;
    record.source = "output";
    (are_samples ? record.rank_samples_per_s : record.step_ms) = median_of_steps(values);
    record.begin_ns = static_cast<double>(printed.front().ns);
    record.seconds = static_cast<double>(printed.back().ns - printed.front().ns) / 1e9;
    return record;
}

}  // namespace

StepsRecord steps_of_marks(std::string_view marks) {
    StepsRecord record;
    record.compression = said_of(marks, "compression");
    record.backend = said_of(marks, "backend");
    if (const auto batch = to_int(said_of(marks, "samples"), 1, kGlobalBatchMax))
        record.batch = static_cast<double>(*batch);
    for (const char* const source : {"progress", "torch"}) {
        const std::vector<Mark> found = marks_from(marks, source);
        std::vector<double> times_ms;
        for (std::size_t i = 1; i < found.size(); ++i) {
            const long long steps = found[i].step - found[i - 1].step;
            const auto ms = static_cast<double>(found[i].ns - found[i - 1].ns) / 1e6;
            if (steps <= 0) continue;  // it has begun anew
            times_ms.push_back(ms / static_cast<double>(steps));
            record.steps += static_cast<std::uint64_t>(steps);
        }
        if (times_ms.empty()) continue;
        record.source = source;
        record.step_ms = median_of_steps(times_ms);
        record.begin_ns = static_cast<double>(found.front().ns);
        record.seconds = static_cast<double>(found.back().ns - found.front().ns) / 1e9;
        break;
    }
    return record;
}

StepsRecord steps_of_output(StepRegex::Unit unit, std::span<const Printed> printed) {
    using Unit = StepRegex::Unit;
    if (unit == Unit::steps || unit == Unit::samples) return steps_of_counts(unit, printed);
    StepsRecord record;
    record.steps = printed.size();
    if (printed.empty()) return record;
    record.source = "output";
    record.begin_ns = static_cast<double>(printed.front().ns);
    std::vector<double> values;
    for (const Printed& each : printed) values.push_back(each.value);
    const double median = median_of_steps(values);
    const double all = std::accumulate(values.begin(), values.end(), 0.0);
    switch (unit) {
        case Unit::seconds:
        case Unit::ms:
        case Unit::us: {
            const double ms = unit == Unit::seconds ? 1e3 : unit == Unit::ms ? 1 : 1e-3;
            record.step_ms = median * ms;
            record.seconds = all * ms / 1e3;
            break;
        }
        case Unit::steps_per_s:
            record.step_ms = 1e3 / median;
            break;
        case Unit::samples_per_s:
            record.samples_per_s = median;
            break;
        case Unit::rank_samples_per_s:
            record.rank_samples_per_s = median;
            break;
        case Unit::steps:
        case Unit::samples:
            break;
    }
    return record;
}

void add_accuracies(StepsRecord& record, std::span<const Printed> accuracies) {
    for (const Printed& each : accuracies) {
        EpochRecord& epoch = record.epochs.emplace_back();
        epoch.epoch = static_cast<int>(record.epochs.size());
        epoch.accuracy = each.value;
        epoch.seconds = (static_cast<double>(each.ns) - record.begin_ns) / 1e9;
    }
}

double median_of_steps(std::span<const double> values) {
    const auto later = values.subspan(std::min(kFirstSteps, values.size() / 2));
    if (later.empty()) return kUnknown;
    std::vector<double> sorted(later.begin(), later.end());
    return summarize(sorted).p50;
}

}  // namespace dtrun::lab::rank
