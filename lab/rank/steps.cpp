#include "lab/rank/steps.h"

#include "base/strings.h"
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

}  // namespace

StepsRecord steps_of_marks(std::string_view marks) {
    StepsRecord record;
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
        record.seconds = static_cast<double>(found.back().ns - found.front().ns) / 1e9;
        break;
    }
    return record;
}

StepsRecord steps_of_output(StepRegex::Unit unit, std::span<const double> values) {
    using Unit = StepRegex::Unit;
    StepsRecord record;
    record.steps = values.size();
    if (values.empty()) return record;
    record.source = "output";
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
    }
    return record;
}

double median_of_steps(std::span<const double> values) {
    const auto later = values.subspan(std::min(kFirstSteps, values.size() / 2));
    if (later.empty()) return kUnknown;
    std::vector<double> sorted(later.begin(), later.end());
    return summarize(sorted).p50;
}

}  // namespace dtrun::lab::rank
