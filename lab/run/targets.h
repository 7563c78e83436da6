#pragma once

#include "base/result.h"
#include "lab/plan/options.h"
#include "lab/report/results.h"

#include <string_view>

namespace dtrun::lab {

/// Checks, before minutes of measuring, that the reports can be written. Errc: invalid_input
Result<void> check_report_targets(const BenchCommand& command);

/// Where the terminal's text goes: standard output, or standard error if a report goes there.
int screen_of(const BenchCommand& command);

/// That of --lang.
Language language_of(const BenchCommand& command);

/// A report in the command's language, with the title, the line rate and the target accuracy that the command names.
LabReport as_wished(LabReport report, const BenchCommand& command);

/// Writes a report into each file that the command names; plots of lab.md lie beside it as lab-1.svg, lab-2.svg, ...
/// \return the first failure, with the flag; others are written nevertheless. Errc: internal
Result<void> write_reports(const LabReport& report, const BenchCommand& command);

/// \param path  "-" is standard output. Errc: internal
Result<void> write_report_target(std::string_view path, std::string_view text);

}  // namespace dtrun::lab
