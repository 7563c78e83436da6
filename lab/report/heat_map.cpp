#include "lab/report/heat_map.h"

#include "lab/report/chart.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

namespace dtrun::lab {
namespace {

constexpr double kMapWidth = 480;
constexpr double kMapTop = 24;
constexpr double kNameLetter = 6.6;   // of a name, on the average
constexpr std::size_t kNameMax = 16;  // letters of a name that have room
constexpr double kCellMax = 56;       // few cells need not fill the picture
constexpr double kTextCell = 36;      // a cell that is narrower has no text
constexpr double kNameCell = 11;      // a row that is lower has no name
constexpr double kPalest = 0.06;      // opacity of the best value
constexpr double kStrongest = 0.5;    // of the worst; text on it stays readable

std::string short_name(const std::string& name) {
    return name.size() <= kNameMax ? name : name.substr(0, kNameMax - 1) + "…";
}

/// What is known of all values, on a logarithmic scale.
struct Span {
    double low = kUnknown, high = kUnknown;
};

Span span_of(const HeatMapData& data) {
    Span span;
    for (const std::vector<double>& row : data.values)
        for (const double value : row)
            if (value > 0) {
                span.low = std::fmin(span.low, std::log(value));
                span.high = std::fmax(span.high, std::log(value));
            }
    return span;
}

/// Values that are nearly the same must not look as if they differed: the full range of colours is
/// for a factor of two at least.
double opacity_of(double value, const Span& span, bool strong_is_high) {
    const double range = std::max(span.high - span.low, std::log(2));
    const double distance =
        strong_is_high ? std::log(value) - span.low : span.high - std::log(value);
    return kPalest + (kStrongest - kPalest) * std::clamp(distance / range, 0.0, 1.0);
}

class MapPainter {
public:
    explicit MapPainter(const HeatMapData& data) : data_(data), span_(span_of(data)) {
        std::size_t longest = 0;
        for (const std::string& name : data.names)
            longest = std::max(longest, std::min(name.size(), kNameMax));
        left_ = static_cast<double>(longest) * kNameLetter + 14;
        const auto count = static_cast<double>(std::max<std::size_t>(data.names.size(), 1));
        cell_ = std::min((kMapWidth - left_) / count, kCellMax);
        height_ = kMapTop + cell_ * count + 4;
    }

    std::string draw() {
        text_ = fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n",
                            kMapWidth, height_, html_text(data_.description));
        names();
        for (std::size_t row = 0; row < data_.values.size(); ++row)
            for (std::size_t column = 0; column < data_.values[row].size(); ++column)
                cell(row, column);
        return text_ + "</svg>\n";
    }

private:
    double x_of(std::size_t column) const { return left_ + cell_ * static_cast<double>(column); }
    double y_of(std::size_t row) const { return kMapTop + cell_ * static_cast<double>(row); }

    void names() {
        const auto every = static_cast<std::size_t>(std::ceil(2 * kNameCell / cell_));
        for (std::size_t i = 0; i < data_.names.size(); ++i) {
            if (i % every == 0)
                text_ += fmt::format(
                    "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" "
                    "text-anchor=\"middle\">{}</text>\n",
                    x_of(i) + cell_ / 2, kMapTop - 7, i);
            if (cell_ >= kNameCell || i % every == 0)
                text_ += fmt::format(
                    "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" "
                    "text-anchor=\"end\">{}</text>\n",
                    left_ - 7, y_of(i) + cell_ / 2 + 4, html_text(short_name(data_.names[i])));
        }
    }

    void cell(std::size_t row, std::size_t column) {
        const double value = data_.values[row][column];
        if (!(value > 0)) return;
        const double gap = cell_ > kNameCell ? 1.5 : 0.5;
        const int corner = cell_ > kNameCell ? 2 : 0;
        const std::string shown = data_.text_of(value);
        text_ += fmt::format(
            "<g><rect class=\"heat\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
            "rx=\"{}\" fill-opacity=\"{:.2f}\"/>",
            x_of(column), y_of(row), cell_ - gap, cell_ - gap, corner,
            opacity_of(value, span_, data_.strong_is_high));
        if (cell_ >= kTextCell)
            text_ += fmt::format(
                "<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                x_of(column) + (cell_ - gap) / 2, y_of(row) + cell_ / 2 + 4, shown);
        text_ += fmt::format("<title>{} → {}: {} {}</title></g>\n", html_text(data_.names[row]),
                             html_text(data_.names[column]), shown, data_.unit);
    }

    const HeatMapData& data_;
    Span span_;
    double left_ = 0;
    double cell_ = 0;
    double height_ = 0;
    std::string text_;
};

}  // namespace

std::string heat_map_svg(const HeatMapData& data) {
    return MapPainter(data).draw();
}

}  // namespace dtrun::lab
