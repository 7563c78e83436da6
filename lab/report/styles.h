#pragma once

#include "collectives/backends/backend_table.h"
#include "lab/report/figures.h"
#include "lab/report/results.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

using Names = std::vector<std::string>;

/// Adds a name, unless it is there.
void add_name(Names& names, const std::string& name);

/// Gives each backend one colour in all figures, and each compression one that no backend has, as
/// long as there are enough. What is not compressed has the colour of its backend.
class Styles {
public:
    explicit Styles(const LabReport& report);

    Chart::Series backend(const std::string& name) const;
    /// \param name  a compression or an algorithm
    Chart::Series compression(const std::string& name, const std::string& backend_name) const;

private:
    static constexpr int kKnown = static_cast<int>(collectives::kBackendCount);
    static_assert(kKnown < Chart::kColors);  // the rest is for others

    const ReportWords& words_;
    Names backends_;
    Names compressions_;
};

/// Keeps the best shape of each number of ranks in the line, and puts the others beside it.
void keep_best(Chart::Series& series);

Chart::Axis ranks_axis(const ReportWords& words);

/// Adds a figure that has something to show.
void add_if_lines(std::vector<Figure>& figures, Figure figure);

}  // namespace dtrun::lab
