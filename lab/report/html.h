#pragma once

#include "lab/report/compare.h"
#include "lab/report/results.h"

#include <string>

namespace dtrun::lab {

/// The whole report as one HTML page: no scripts, no other files. Light or dark as the reader has
/// it, light in print.
std::string write_html(const LabReport& report);

/// A comparison as one HTML page of the same kind.
/// \param before, after  what the two reports are called
std::string write_html(const Comparison& comparison, const LabReport& before,
                       const LabReport& after);

}  // namespace dtrun::lab
