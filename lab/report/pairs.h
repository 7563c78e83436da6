#pragma once

#include "lab/report/results.h"
#include "lab/report/tables.h"

#include <string>
#include <vector>

namespace dtrun::lab {

/// What one backend has between every two ranks. Rows send, columns receive; unknown on the
/// diagonal.
struct PairMatrix {
    ShapeRecord shape;
    std::vector<std::string> names;  ///< of ranks: "0 s1"
    std::vector<std::vector<double>> latency_us;
    std::vector<std::vector<double>> bandwidth_GBps;

    bool is_of_hosts() const { return shape.slots_per_host == 1; }
};

/// One for each backend and shape, in the order of the report.
std::vector<PairMatrix> pair_matrices(const LabReport& report);

/// "Pairs of hosts, mpi"
std::string pairs_title(const PairMatrix& matrix,
                        const ReportWords& words = words_of(Language::english));

/// Two tables for each matrix, latency and bandwidth; of more than eight ranks one table with a row
/// for each rank instead, which has the range of its pairs.
std::vector<Table> pair_tables(const LabReport& report);

/// Two heat maps for each matrix: stronger colours are slower.
struct HeatMap {
    std::string title;
    std::string svg;
};
std::vector<HeatMap> heat_maps(const PairMatrix& matrix,
                               const ReportWords& words = words_of(Language::english));

}  // namespace dtrun::lab
