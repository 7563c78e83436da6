#pragma once

#include "lab/report/results.h"
#include "lab/report/tables.h"

#include <string>

namespace dtrun::lab {

/// Rows of the terminal as they come, under a heading for each operation, type and compression, in
/// at most 80 columns.
class BenchLines {
public:
    /// A heading if this row needs another one, and the row.
    std::string row(const BenchRow& row);
    /// The same for a training.
    std::string train(const BenchTrain& train);

private:
    BenchShape shape_;
    std::string what_;  ///< of the heading that was last written
};

/// "sweep, mpi, 2 hosts x 4 ranks"
std::string failure_title(const BenchFailure& failure);

/// What follows all rows on the terminal: environment, scaling, compression, failures.
/// \param explain  transports too
std::string terminal_summary(const BenchReport& report, bool explain);

/// A table in columns; what is too wide for 80 is written as "column: cell" lines instead.
std::string plain_text(const BenchTable& table);

/// Every row, training run and failure, with all columns, as RFC 4180 has it. Text that a
/// spreadsheet would take for a formula begins with a quote.
std::string write_csv(const BenchReport& report);

/// The tables of the lab.
std::string write_markdown(const BenchReport& report);

}  // namespace dtrun::lab
