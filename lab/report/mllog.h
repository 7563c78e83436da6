#pragma once

#include "lab/report/results.h"

#include <string>

namespace dtrun::lab {

/// A training as MLPerf's log: lines ":::MLLOG {...}" with the keys that mlperf_logging's rules for
/// open submissions ask for (compliance_checker/training_*/common.yaml there). Times are those of
/// rank 0's clock. The benchmark is called "dtrun_digits", which is none of MLPerf's.
///
/// run_start is the first step's begin. run_stop is the end of the test that first reached the
/// target accuracy, or of the last one; its status is "success" if there is a target and it was
/// reached, "aborted" if it was not, and "success" without one.
std::string write_mllog(const LabReport& report, const TrainRecord& run);

/// Where the log of a run goes: `file`, or, if there are several, a name made from it and the run:
/// "log.txt" becomes "log-int8-mpi-2x4-seed1.txt". "-" stays as it is.
std::string mllog_path(const std::string& file, const TrainRecord& run, bool several);

}  // namespace dtrun::lab
