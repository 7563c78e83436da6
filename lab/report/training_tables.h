#pragma once

#include "lab/report/tables.h"
#include "lab/report/training.h"

#include <string_view>
#include <vector>

namespace dtrun::lab {

/// Backend | hosts | ranks per host | time per step | throughput | speed-up | ..., as the lab has it: inside a host, and
/// between hosts, each with the serial run; one table where there is only one of these.
/// \param scaling  "strong", or "weak": with the batch of all ranks, and the speed-up of throughput; none if there is none
std::vector<Table> scaling_tables(const LabReport& report, std::string_view scaling);
/// Of each backend: serial, parallel, 8 and 16 bits; training time and accuracy, a group of columns for each number of
/// devices, as the lab has it: over all seeds.
std::vector<Table> compression_tables(const LabReport& report);
/// Algorithm | devices | backend | reached | time | epochs: how long it took to the target
/// accuracy.
Table target_table(const LabReport& report);
/// Those of them that have rows.
std::vector<Table> training_tables(const LabReport& report);

/// "96.31 ± 0.24 %", without an interval if there is one seed only.
std::string accuracy_text(const TrainGroup& group, std::size_t seeds, const ReportWords& words);

}  // namespace dtrun::lab
