#pragma once

#include "lab/report/results.h"
#include "lab/report/tables.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

/// Rows of the terminal as they come, under a heading for each operation, type and compression, in
/// at most 80 columns.
class TerminalRows {
public:
    explicit TerminalRows(Language language = Language::english) : words_(words_of(language)) {}

    /// A heading if this row needs another one, and the row.
    std::string row(const RowRecord& row);
    /// A heading if this run needs another one, and the line of a training run.
    std::string train(const TrainRecord& train);

private:
    const ReportWords& words_;
    ShapeRecord shape_;
    std::string what_;  ///< subject of the last heading
};

/// ", about 40 s left", once there are runs to judge by. \param spent  seconds, for `done` of
/// `total` runs
std::string time_left(std::size_t done, std::size_t total, double spent,
                      Language language = Language::english);

/// "sweep, mpi, 2 hosts x 4 ranks"
std::string failure_title(const FailureRecord& failure, Language language = Language::english);

/// What follows all rows on the terminal: environment, scaling, compression, failures.
/// \param explain  adds transports and what was left out
std::string terminal_summary(const LabReport& report, bool explain);

/// A table in columns; what is too wide for 80 is written as "column: cell" lines instead.
std::string plain_text(const Table& table);

/// Every row, pair of ranks, training run, epoch and failure, with all columns, as RFC 4180 has it.
/// Text that a spreadsheet would take for a formula begins with a quote.
std::string write_csv(const LabReport& report);

/// The tables of the lab, to be handed in.
struct MarkdownReport {
    std::string text;
    std::vector<std::string> pictures;  ///< SVG files that it shows: NAME-1.svg, NAME-2.svg, ...
};
/// \param pictures  NAME, as the text is to write it; empty: it shows none
MarkdownReport write_markdown(const LabReport& report, std::string_view pictures = "");

}  // namespace dtrun::lab
