#pragma once

#include "lab/report/chart.h"
#include "lab/report/compare.h"
#include "lab/report/results.h"

#include <string>
#include <vector>

namespace dtrun::lab {

struct Figure {
    std::string title;
    Chart chart;
    bool crosses_hosts = false;  ///< data of it went between hosts
};

/// Figures that belong together, of the same width.
struct FigureGroup {
    std::string title;
    std::string lead;     ///< how to read them
    std::string below{};  ///< the title of the table that they belong to
    std::vector<Figure> figures;
};

/// Every plot that the report has points for: speed-up and efficiency of training, bandwidth by
/// ranks, bandwidth and time by size for each shape.
std::vector<FigureGroup> report_figures(const LabReport& report);

/// How much faster each measurement has become, by size, for each operation and shape; training by
/// ranks. Whiskers are noise: those that reach the line of no change say nothing.
FigureGroup comparison_figures(const Comparison& comparison);

}  // namespace dtrun::lab
