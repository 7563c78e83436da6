#pragma once

#include "base/result.h"
#include "lab/plan/options.h"

#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::lab {

/// Reports that are asked for, with where they go: {"--html", "r.html"}. "-" is standard output.
std::vector<std::pair<std::string_view, std::string_view>> report_targets(
    const BenchCommand& command);

/// Checks, before minutes of measuring, that the reports can be written. Errc: invalid_input
Result<void> check_report_targets(const BenchCommand& command);

/// Errc: internal
Result<void> write_report_target(std::string_view path, std::string_view text);

}  // namespace dtrun::lab
