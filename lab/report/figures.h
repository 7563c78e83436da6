#pragma once

#include "lab/report/chart.h"
#include "lab/report/compare.h"
#include "lab/report/results.h"

#include <string>
#include <vector>

namespace dtrun::lab {

struct BenchFigure {
    std::string title;
    Chart chart;
};

/// Figures that belong together, of the same width.
struct BenchFigures {
    std::string title;
    std::string lead;  ///< how to read them
    std::vector<BenchFigure> figures;
};

/// Every plot that the report has points for: speed-up and efficiency of training, bandwidth by
/// ranks, bandwidth and time by size for each shape.
std::vector<BenchFigures> bench_figures(const BenchReport& report);

/// How much faster each measurement has become, by size, for each operation and shape; training by
/// ranks. Whiskers are noise: those that reach the line of no change say nothing.
BenchFigures comparison_figures(const Comparison& comparison);

}  // namespace dtrun::lab
