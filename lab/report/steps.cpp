#include "lab/report/steps.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace dtrun::lab {
namespace {

/// Ranks whose numbers of steps differ by more than this part do not train the same.
constexpr double kApartMax = 0.1;

Error no_steps(std::span<const StepsRecord> ranks, std::string_view regex) {
    std::uint64_t lines = 0;
    for (const StepsRecord& rank : ranks) lines += rank.lines;
    if (!regex.empty())
        return {Errc::invalid_input,
                fmt::format("--step-regex '{}' is found in none of the {} lines that its ranks "
                            "printed",
                            regex, lines)};
    return {Errc::invalid_input,
            "it told of no two steps: call Worker.progress(step) in each, train with dtrun.torch's "
            "optimizer or hooks, or have steps found in its output by --step-regex"};
}

Result<void> check_agreement(std::span<const StepsRecord> told) {
    const auto [fewest, most] = std::ranges::minmax_element(told, {}, &StepsRecord::steps);
    if (static_cast<double>(fewest->steps) >= static_cast<double>(most->steps) * (1 - kApartMax))
        return {};
    return fail(Errc::invalid_input,
                "its ranks do not agree: rank {} told of {} steps, and rank {} of {}", most->rank,
                most->steps, fewest->rank, fewest->steps);
}

template <double StepsRecord::*Member>
double mean_of(std::span<const StepsRecord> told) {
    double sum = 0;
    for (const StepsRecord& rank : told) sum += rank.*Member;
    return sum / static_cast<double>(told.size());
}

void set(double& known, double value) {
    if (!std::isfinite(known)) known = value;
}

}  // namespace

Result<void> add_steps(TrainRecord& run, std::span<const StepsRecord> ranks,
                       std::string_view regex) {
    std::vector<StepsRecord> told;
    std::ranges::copy_if(ranks, std::back_inserter(told),
                         [](const StepsRecord& rank) { return !rank.source.empty(); });
    if (told.empty() && std::isfinite(run.step_ms)) return {};
    if (told.empty()) return std::unexpected(no_steps(ranks, regex));
    if (auto agreed = check_agreement(told); !agreed) return agreed;
    set(run.step_ms, mean_of<&StepsRecord::step_ms>(told));
    set(run.samples_per_s, mean_of<&StepsRecord::samples_per_s>(told));
    set(run.samples_per_s, mean_of<&StepsRecord::rank_samples_per_s>(told) * run.ranks);
    const double batch = run.global_batch;
    if (batch > 0) set(run.samples_per_s, batch * 1e3 / run.step_ms);
    if (batch > 0) set(run.step_ms, batch * 1e3 / run.samples_per_s);
    set(run.seconds, std::ranges::max(told, {}, &StepsRecord::seconds).seconds);
    return {};
}

}  // namespace dtrun::lab
