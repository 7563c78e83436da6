#pragma once

#include "lab/report/results.h"
#include "lab/report/tables.h"

#include <string>

namespace dtrun::lab {

/// Rows of the terminal as they come, under a heading for each operation, type and compression, in
/// at most 80 columns.
class TerminalRows {
public:
    /// A heading if this row needs another one, and the row.
    std::string row(const RowRecord& row);
    /// A heading if this run needs another one, and the line of a training run.
    std::string train(const TrainRecord& train);

private:
    ShapeRecord shape_;
    std::string what_;  ///< subject of the last heading
};

/// ", about 40 s left", once there are runs to judge by. \param spent  seconds, for `done` of
/// `total` runs
std::string time_left(std::size_t done, std::size_t total, double spent);

/// "sweep, mpi, 2 hosts x 4 ranks"
std::string failure_title(const FailureRecord& failure);

/// What follows all rows on the terminal: environment, scaling, compression, failures.
/// \param explain  adds transports and what was left out
std::string terminal_summary(const LabReport& report, bool explain);

/// A table in columns; what is too wide for 80 is written as "column: cell" lines instead.
std::string plain_text(const Table& table);

/// Every row, pair of ranks, training run, epoch and failure, with all columns, as RFC 4180 has it.
/// Text that a spreadsheet would take for a formula begins with a quote.
std::string write_csv(const LabReport& report);

/// The tables of the lab.
std::string write_markdown(const LabReport& report);

}  // namespace dtrun::lab
