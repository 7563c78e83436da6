#pragma once

#include "lab/report/results.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

/// A line chart, and how it becomes an SVG picture that stands inside an HTML page: colours are the
/// page's, by the classes s0 to s7, grid, axis, ideal and note; text is the page's too.
struct Chart {
    enum class Scale { linear, logarithmic };
    enum class Unit { number, times, bytes, percent, microseconds, gigabytes_per_second };

    struct Axis {
        std::string label;
        Scale scale = Scale::linear;
        Unit unit = Unit::number;
        bool only_values = false;  ///< ticks where points are, as for numbers of ranks
        bool from_zero = true;     ///< a linear y axis begins at 0, else below the lowest point
        /// The range that a y axis covers at least, so that neighbouring charts share it; unknown:
        /// that of the points.
        double low = kUnknown;
        double high = kUnknown;
    };
    struct Point {
        double x = 0;
        double y = 0;
        double high = kUnknown;  ///< a whisker up to here
        std::string tip;         ///< shown when pointed at
        double low = kUnknown;   ///< the whisker begins here; unknown: at the point
    };
    struct Series {
        std::string label;  ///< stands at the end of its line
        int color = 0;      ///< 0..kColors-1; also chooses the mark
        bool is_ideal = false;
        std::vector<Point> points;   ///< sorted by x, joined by a line
        std::vector<Point> loose{};  ///< marks without a line
    };
    static constexpr int kColors = 8;

    std::string description;  ///< text for readers who cannot see it
    Axis x;
    Axis y;
    std::vector<Series> series;

    /// Adds a dashed line at a height, behind the others and as long as they are.
    void add_level(std::string label, double height);
    /// Whether two points of it can be joined.
    bool has_lines() const;
};

/// The picture, 480 wide; what cannot be shown (unknown, or 0 on a logarithmic axis) is left out.
std::string chart_svg(const Chart& chart);

/// Values at which an axis is marked, at most about `count` of them; within [low, high].
std::vector<double> axis_ticks(double low, double high, const Chart::Axis& axis, std::size_t count);

/// Text for HTML and SVG, attributes too.
std::string html_text(std::string_view text);

}  // namespace dtrun::lab
