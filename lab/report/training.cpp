#include "lab/report/training.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <tuple>

namespace dtrun::lab {
namespace {

using std::string_view;

auto key_of(const TrainRecord& run) {
    return std::tuple(static_cast<const ShapeRecord&>(run), run.algorithm, run.model, run.data,
                      run.scaling, run.epochs, run.global_batch, run.loss_scale);
}

double median(std::vector<double> values) {
    std::erase_if(values, [](double value) { return !std::isfinite(value); });
    if (values.empty()) return kUnknown;
    std::ranges::sort(values);
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <double TrainRecord::*Member>
std::vector<double> values_of(const TrainGroup& group) {
    std::vector<double> values;
    for (const TrainRecord* const run : group.seeds) values.push_back(run->*Member);
    return values;
}

void summarize(TrainGroup& group) {
    group.accuracy = estimate_of(values_of<&TrainRecord::accuracy>(group));
    group.seconds = estimate_of(values_of<&TrainRecord::seconds>(group));
    TrainRecord& run = group.run;
    run.accuracy = group.accuracy.mean;
    run.seconds = group.seconds.mean;
    run.loss = estimate_of(values_of<&TrainRecord::loss>(group)).mean;
    run.step_ms = median(values_of<&TrainRecord::step_ms>(group));
    run.comm_ms = median(values_of<&TrainRecord::comm_ms>(group));
    run.compute_ms = median(values_of<&TrainRecord::compute_ms>(group));
    run.samples_per_s = median(values_of<&TrainRecord::samples_per_s>(group));
}

bool same_problem(const TrainRecord& one, const TrainRecord& run) {
    const int ranks = run.scaling == "weak" ? std::max(run.ranks, 1) : 1;
    return one.model == run.model && one.data == run.data &&
           one.global_batch * ranks == run.global_batch;
}

/// The run with one rank that gives T(1) for a run; nullptr if there is none.
const TrainRecord* alone(const std::vector<TrainGroup>& groups, const TrainRecord& run) {
    const TrainRecord* found = nullptr;
    for (const TrainGroup& each : groups) {
        if (each.run.ranks != 1 || !same_problem(each.run, run)) continue;
        if (each.run.is_on_gpu() != run.is_on_gpu()) continue;
        const bool is_serial = each.run.is_serial();
        const bool is_own = each.run.backend == run.backend && each.run.algorithm == run.algorithm;
        if (is_own && !is_serial) return &each.run;
        if (is_serial && found == nullptr) found = &each.run;
    }
    return found;
}

}  // namespace

double student_t(std::size_t degrees) {
    constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                 2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
    if (degrees <= std::size(kTable)) return kTable[std::max<std::size_t>(degrees, 1) - 1];
    // Beyond the table the first term of Cornish and Fisher's expansion is right to three digits.
    constexpr double kNormal = 1.959964;
    return kNormal + (kNormal * kNormal * kNormal + kNormal) / 4 / static_cast<double>(degrees);
}

Estimate estimate_of(std::span<const double> values) {
    std::vector<double> known;
    std::ranges::copy_if(values, std::back_inserter(known),
                         [](double value) { return std::isfinite(value); });
    Estimate estimate;
    estimate.count = known.size();
    if (known.empty()) return estimate;
    const auto count = static_cast<double>(known.size());
    estimate.mean = std::accumulate(known.begin(), known.end(), 0.0) / count;
    if (known.size() < 2) return estimate;
    double squares = 0;
    for (const double value : known) squares += (value - estimate.mean) * (value - estimate.mean);
    estimate.interval = student_t(known.size() - 1) * std::sqrt(squares / (count - 1) / count);
    return estimate;
}

std::vector<TrainGroup> train_groups(const LabReport& report) {
    std::vector<TrainGroup> groups;
    for (const TrainRecord& run : report.train) {
        auto group = std::ranges::find_if(
            groups, [&run](const TrainGroup& each) { return key_of(each.run) == key_of(run); });
        if (group == groups.end()) {
            group = groups.insert(groups.end(), TrainGroup{});
            group->run = run;
        }
        group->seeds.push_back(&run);
    }
    for (TrainGroup& group : groups) summarize(group);
    return groups;
}

std::size_t seeds_of(const std::vector<TrainGroup>& groups) {
    std::size_t most = 0;
    for (const TrainGroup& group : groups) most = std::max(most, group.seeds.size());
    return most;
}

double seconds_to(const TrainRecord& run, double accuracy) {
    const auto reached = std::ranges::find_if(
        run.by_epoch, [accuracy](const EpochRecord& epoch) { return epoch.accuracy >= accuracy; });
    return reached == run.by_epoch.end() ? kUnknown : reached->seconds;
}

std::vector<ScalingPoint> scaling_of(const LabReport& report, string_view algorithm,
                                     string_view scaling) {
    std::vector<ScalingPoint> points;
    const std::vector<TrainGroup> groups = train_groups(report);
    for (const TrainGroup& group : groups) {
        const TrainRecord& run = group.run;
        if (!run.is_serial() && (run.algorithm != algorithm || run.scaling != scaling)) continue;
        ScalingPoint& point = points.emplace_back();
        point.run = run;
        const TrainRecord* const one = alone(groups, run);
        if (one == nullptr) continue;
        // By samples, wherever they are known: in weak scaling a step of p ranks has p times as many.
        const double steps = scaling == "weak" ? run.ranks : 1;
        point.speedup = run.samples_per_s / one->samples_per_s;
        if (!(point.speedup > 0)) point.speedup = one->step_ms / run.step_ms * steps;
        if (!(point.speedup > 0) || std::isinf(point.speedup)) point.speedup = kUnknown;
        point.efficiency = point.speedup / run.ranks;
    }
    return points;
}

bool has_scaling(const LabReport& report, string_view scaling) {
    return std::ranges::any_of(report.train, [scaling](const TrainRecord& run) {
        return !run.is_serial() && run.scaling == scaling;
    });
}

std::string model_text(const TrainRecord& run) {
    if (run.model.starts_with('\'')) return run.model;  // a first word with blanks in it
    const std::size_t slash = run.model.substr(0, run.model.find(' ')).rfind('/');
    return slash == std::string::npos ? run.model : run.model.substr(slash + 1);
}

std::string training_title(const TrainRecord& run, const ReportWords& words) {
    const std::string title =
        run.epochs > 0 ? filled(words.training_of, run.model) : model_text(run);
    if (run.global_batch <= 0) return title;
    if (run.scaling == "weak") return filled(words.samples_a_step_each, title, batch_of_rank(run));
    return filled(words.samples_a_step, title, run.global_batch);
}

std::string algorithm_name(string_view algorithm, const ReportWords& words) {
    if (algorithm == "serial") return std::string(words.serial);
    return std::string(algorithm == "parallel" ? words.parallel : algorithm);
}

std::string serial_name(const TrainRecord& run, const ReportWords& words) {
    return std::string(run.is_on_gpu() ? words.serial_gpu : words.serial);
}

}  // namespace dtrun::lab
