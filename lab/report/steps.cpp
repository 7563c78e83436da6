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

/// Takes the accuracies of the first rank that has printed any.
void add_accuracies(TrainRecord& run, std::span<const StepsRecord> ranks) {
    const StepsRecord* first = nullptr;
    for (const StepsRecord& rank : ranks)
        if (!rank.epochs.empty() && (first == nullptr || rank.rank < first->rank)) first = &rank;
    if (first == nullptr) return;
    set(run.accuracy, first->epochs.back().accuracy);
    if (run.by_epoch.empty()) run.by_epoch = first->epochs;
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
    add_accuracies(run, ranks);
    if (run.backend == kOwnBackend && !told.front().backend.empty())
        run.backend = told.front().backend;
    if (const double samples = mean_of<&StepsRecord::batch>(told) * run.ranks;
        run.global_batch == 0 && std::isfinite(samples))
        run.global_batch = static_cast<int>(std::lround(samples));
    set(run.step_ms, mean_of<&StepsRecord::step_ms>(told));
    set(run.samples_per_s, mean_of<&StepsRecord::samples_per_s>(told));
    set(run.samples_per_s, mean_of<&StepsRecord::rank_samples_per_s>(told) * run.ranks);
    const double batch = run.global_batch;
    if (batch > 0) set(run.samples_per_s, batch * 1e3 / run.step_ms);
    if (batch > 0) set(run.step_ms, batch * 1e3 / run.samples_per_s);
    set(run.seconds, std::ranges::max(told, {}, &StepsRecord::seconds).seconds);
    return {};
}

Result<void> check_compression(std::span<const StepsRecord> ranks, std::string_view wanted) {
    for (const StepsRecord& rank : ranks)
        if (!wanted.empty() && !rank.source.empty() && rank.compression != wanted)
            return fail(Errc::invalid_input,
                        "gradients of rank {0} were not sent as {1}: it does not train with "
                        "dtrun.torch's optimizer, or chooses a compression itself; give the words "
                        "by which it does, as in --algorithms {1}=--its-flag",
                        rank.rank, wanted);
    return {};
}

std::string scaling_by_batch(const TrainRecord& run, std::span<const TrainRecord> known) {
    const auto alone = std::ranges::find_if(known, [&run](const TrainRecord& each) {
        return each.ranks == 1 && each.model == run.model && each.global_batch > 0;
    });
    const bool is_weak = run.ranks > 1 && alone != known.end() &&
                         run.global_batch == alone->global_batch * run.ranks;
    return is_weak ? "weak" : "strong";
}

}  // namespace dtrun::lab
