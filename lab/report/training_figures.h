#pragma once

#include "lab/report/figures.h"
#include "lab/report/styles.h"

namespace dtrun::lab {

/// Speed-up and efficiency of strong scaling.
FigureGroup scaling_figures(const LabReport& report, const Styles& styles);
/// Throughput and efficiency of weak scaling.
FigureGroup weak_scaling_figures(const LabReport& report, const Styles& styles);
/// Accuracy by time and by epochs, of every algorithm: for each backend in its largest shape of one
/// host, and in that of several.
FigureGroup accuracy_figures(const LabReport& report, const Styles& styles);

}  // namespace dtrun::lab
