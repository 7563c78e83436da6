#pragma once

#include "lab/report/results.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

/// A table without a format. Cells are foreign text, not escaped.
struct Table {
    struct Column {
        std::string name;
        bool is_number = false;  ///< stands at the right
        std::string group;  ///< stands above it and its neighbours of the same group; empty: none
    };
    std::string title;
    std::string note;  ///< a sentence or two below the title; may be empty
    std::vector<Column> columns;
    std::string groups;  ///< what groups of columns are, as the name of a column
    std::vector<std::vector<std::string>> rows;  ///< each as long as `columns`

    bool empty() const { return rows.empty(); }
};

/// Columns of these names: those in `texts` stand at the left, all others are numbers.
std::vector<Table::Column> columns_of(std::initializer_list<std::string_view> texts,
                                      std::initializer_list<std::string_view> names);

/// A table whose columns have groups, with a row for each of these instead, as the sheets have it: the group's name is
/// a cell, and what stood below it stands in columns that all groups share. Others stay as they are.
Table with_groups_as_rows(const Table& table);

/// The hosts' properties, with one column for each kind of host; cells may have several lines.
Table environment_table(const LabReport& report);
/// One table for each operation and type of elements, apart for those in place.
std::vector<Table> sweep_tables(const LabReport& report);
/// Communicators: which way data took, and how long it took to make them.
Table transport_table(const LabReport& report);
/// Everything that backends said of their transports, each saying once.
Table explain_table(const LabReport& report);
Table failure_table(const LabReport& report);
/// Backends and runs that were left out, one a line.
Table skipped_table(const LabReport& report);
/// All tables that have rows, in the order of a report.
std::vector<Table> all_tables(const LabReport& report);

/// What a report is called: --title, else what it is about, and the hosts.
std::string report_heading(const LabReport& report);

/// "s1, s2 and s3"; in Chinese "s1、s2、s3".
std::string listed(const std::vector<std::string>& names, Language language);

/// "12.3", "0.0456", "12340"; "-" for what is not known.
std::string short_number(double number, int digits = 4);
/// GB/s: "0.003", "12.34", "123.4".
std::string bandwidth_text(double gigabytes);
/// "0.85 s", "1m13.8s".
std::string short_time(double seconds);
/// "98.35 %"
std::string percent(double fraction, int decimals = 2);
/// "2 hosts x 4 ranks"
std::string shape_text(const ShapeRecord& shape,
                       const ReportWords& words = words_of(Language::english));
/// "allreduce of f32", "allreduce of f32, in place"
std::string subject_of(const RowRecord& row,
                       const ReportWords& words = words_of(Language::english));
/// "mpi", "gloo fp16".
std::string label_of(std::string_view backend, std::string_view compression);

}  // namespace dtrun::lab
