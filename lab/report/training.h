#pragma once

#include "lab/report/results.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace dtrun::lab {

/// What several seeds say of a number.
struct Estimate {
    double mean = kUnknown;
    double interval = kUnknown;  ///< half of the 95 % interval of the mean; unknown: one seed
    std::size_t count = 0;       ///< seeds that know it
};

/// \param values  unknown ones are left out
Estimate estimate_of(std::span<const double> values);

/// The 97.5 % quantile of Student's t distribution. \param degrees  of freedom, at least 1
double student_t(std::size_t degrees);

/// Trainings that differ by nothing but their seed.
struct TrainGroup {
    /// One for all of them: medians of times of a step, means of everything else.
    TrainRecord run;
    Estimate accuracy;
    Estimate seconds;
    std::vector<const TrainRecord*> seeds;  ///< of the report
};

/// In the order of the report.
std::vector<TrainGroup> train_groups(const LabReport& report);

/// The most seeds that a training of the report has.
std::size_t seeds_of(const std::vector<TrainGroup>& groups);

/// When a training first had an accuracy at the end of an epoch; kUnknown: it never had.
double seconds_to(const TrainRecord& run, double accuracy);

/// A training run against the one with a single rank.
struct ScalingPoint {
    TrainRecord run;            ///< of all seeds
    double speedup = kUnknown;  ///< in strong scaling T(1) / T(p) of a step, in weak p x efficiency
    double efficiency = kUnknown;  ///< throughput(p) / (p x throughput(1))
};

/// Runs of an algorithm, and serial ones, in the order of the report. T(1) is the run of one rank
/// with the same model, data and batch (in weak scaling: batch of a rank): of the same backend,
/// else the serial one that computes on the same, a processor or a GPU.
/// \param algorithm  "parallel" or a compression
/// \param scaling    "strong" or "weak"
std::vector<ScalingPoint> scaling_of(const LabReport& report, std::string_view algorithm,
                                     std::string_view scaling = "strong");

/// Samples of a step that one rank has: in weak scaling.
inline int batch_of_rank(const TrainRecord& run) {
    return run.global_batch / std::max(run.ranks, 1);
}

/// The network that was trained, or the words of a program, the first without its folder: "python train.py".
std::string model_text(const TrainRecord& run);

/// What it is that was trained, or run: "training mlp, 256 samples a step".
std::string training_title(const TrainRecord& run,
                           const ReportWords& words = words_of(Language::english));

/// The name of an algorithm: "serial" and "parallel" are words, others names.
std::string algorithm_name(std::string_view algorithm, const ReportWords& words);

/// "serial", or "serial, GPU": what takes the backend's place in tables and figures.
std::string serial_name(const TrainRecord& run,
                        const ReportWords& words = words_of(Language::english));

/// Whether the report has trainings with several ranks, of strong or weak scaling.
bool has_scaling(const LabReport& report, std::string_view scaling);

}  // namespace dtrun::lab
