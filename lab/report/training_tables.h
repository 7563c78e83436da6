#pragma once

#include "lab/report/tables.h"
#include "lab/report/training.h"

#include <vector>

namespace dtrun::lab {

/// Backend | hosts | ranks per host | time | throughput | speed-up, as the lab has it.
Table scaling_table(const LabReport& report);
/// The same of weak scaling, with the batch of all ranks and without a speed-up.
Table weak_scaling_table(const LabReport& report);
/// Algorithm | devices | training time | accuracy, as the lab has it: over all seeds.
Table compression_table(const LabReport& report);
/// Algorithm | devices | backend | reached | time | epochs: how long it took to the target
/// accuracy.
Table target_table(const LabReport& report);
/// Those of the four that have rows.
std::vector<Table> training_tables(const LabReport& report);

/// "96.31 ± 0.24 %", without an interval if there is one seed only.
std::string accuracy_text(const TrainGroup& group, std::size_t seeds);

}  // namespace dtrun::lab
