#pragma once

#include "lab/report/results.h"
#include "lab/report/tables.h"

#include <string>
#include <vector>

namespace dtrun::lab {

/// The model of Hockney of one operation in one shape: T(S) = latency + S / bandwidth.
struct CostFit : ShapeRecord {
    std::string op, dtype;
    double latency_us = kUnknown;      ///< alpha: what a call costs that moves nothing
    double bandwidth_GBps = kUnknown;  ///< 1 / beta, as bus bandwidth: what very large arrays get
    double half_bytes = kUnknown;      ///< the size at which half of that bandwidth is reached
    double error = kUnknown;  ///< root mean square of the relative deviations from the model
};

/// Fits medians of three sizes or more, uncompressed and not in place; relative deviations count,
/// so that small sizes weigh as much as large ones. Where times do not grow with the size there is
/// no fit.
std::vector<CostFit> fit_costs(const LabReport& report);

/// backend | hosts | per host | operation | latency | bandwidth | half of it at | deviation
Table fit_table(const LabReport& report);

}  // namespace dtrun::lab
