#pragma once

#include "lab/report/results.h"
#include "lab/report/tables.h"

#include <string>
#include <vector>

namespace dtrun::lab {

/// One measurement that two reports have.
struct ComparedRow : ShapeRecord {
    enum class Mark { same, faster, slower };
    std::string what;   ///< "allreduce f32 fp16 64K", "train fp16"
    std::string group;  ///< "allreduce of f32", "training cnn"
    std::string compression;
    std::uint64_t bytes = 0;  ///< 0: training
    double before_us = kUnknown;
    double after_us = kUnknown;
    double speed = kUnknown;  ///< before / after: above 1 is faster
    double noise = 0;         ///< a change by less than this share says nothing
    Mark mark = Mark::same;
};

struct Comparison {
    Language language = Language::english;  ///< of the second report
    std::vector<ComparedRow> rows;
    int only_before = 0;  ///< measurements that the second report lacks
    int only_after = 0;
    int count(ComparedRow::Mark mark) const;
};

/// How much of p50 is noise: the nearer of the distances to the fastest and to the 99th percentile,
/// as a share; at least 3 %. Runs differ by about that even where nothing has changed.
double noise_of(const RowRecord& row);

/// Matches rows by backend, shape, operation, type, compression and size, and training runs by
/// algorithm and model. A change is told from noise if it is larger than both spreads together
/// (their root of squares); training tells no spread and has 5 % each.
Comparison compare_reports(const LabReport& before, const LabReport& after);

/// "mpi 2x4" is 2 hosts with 4 ranks each. Marked rows come first, the largest change before the
/// others.
Table comparison_table(const Comparison& comparison);

/// "12 faster, 3 slower, 40 within noise; 2 only in the first report"
std::string comparison_text(const Comparison& comparison);

}  // namespace dtrun::lab
