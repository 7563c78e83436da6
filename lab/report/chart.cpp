#include "lab/report/chart.h"

#include "base/text_layout.h"
#include "base/utf8.h"
#include "lab/plan/plan.h"
#include "lab/report/tables.h"

#include <fmt/format.h>
#include <algorithm>
#include <numeric>
#include <set>

namespace dtrun::lab {
namespace {

constexpr double kWidth = 480;
constexpr double kHeight = 300;
constexpr double kTop = 34;
constexpr double kBottom = 46;
constexpr double kLeft = 62;
constexpr double kLetter = 8.8;     // of a label, on the average
constexpr double kLabelApart = 16;  // between labels
constexpr std::size_t kLabelMax = 18;
constexpr double kTickApart = 26;

bool is_log(const Chart::Axis& axis) {
    return axis.scale == Chart::Scale::logarithmic;
}

bool can_show(double value, const Chart::Axis& axis) {
    return std::isfinite(value) && (!is_log(axis) || value > 0);
}

/// Maps values along one axis to places on the picture.
class Ruler {
public:
    Ruler(const Chart::Axis& axis, double low, double high, double from, double to)
        : log_(is_log(axis)), low_(at(low)), high_(at(high)), from_(from), to_(to) {}

    double place(double value) const {
        const double share = high_ > low_ ? (at(value) - low_) / (high_ - low_) : 0.5;
        return from_ + share * (to_ - from_);
    }

private:
    double at(double value) const { return log_ ? std::log10(value) : value; }
    bool log_;
    double low_, high_, from_, to_;
};

std::string tick_text(double value, Chart::Unit unit) {
    switch (unit) {
        case Chart::Unit::bytes:
            return short_bytes(value);
        case Chart::Unit::percent:
            return fmt::format("{:.4g} %", value * 100);
        case Chart::Unit::microseconds:
            if (value >= 1e6) return fmt::format("{:g} s", value / 1e6);
            if (value >= 1e3) return fmt::format("{:g} ms", value / 1e3);
            return fmt::format("{:g} µs", value);
        case Chart::Unit::gigabytes_per_second:
            if (value == 0) return "0";
            if (value >= 1) return fmt::format("{:g} GB/s", value);
            if (value >= 1e-3) return fmt::format("{:g} MB/s", value * 1e3);
            return fmt::format("{:g} kB/s", value * 1e6);
        case Chart::Unit::times:
            return fmt::format("{:g}×", value);
        case Chart::Unit::number:
            break;
    }
    return fmt::format("{:g}", value);
}

/// 1, 2 or 5 times a power of ten, at least `value`.
double nice_step(double value) {
    const double power = std::pow(10, std::floor(std::log10(value)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= value * (1 - 1e-9)) return factor * power;
    return 10 * power;
}

/// Powers of `base` within bounds, thinned out evenly to `count` at most.
std::vector<double> powers(double low, double high, double base, std::size_t count) {
    const int first = static_cast<int>(std::ceil(std::log(low) / std::log(base) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log(high) / std::log(base) + 1e-9));
    int stride = 1;
    while ((last - first) / stride + 1 > static_cast<int>(count)) ++stride;
    std::vector<double> ticks;
    for (int power = first; power <= last; power += stride) ticks.push_back(std::pow(base, power));
    return ticks;
}

std::vector<double> log_ticks(double low, double high, std::size_t count) {
    if (std::log10(high / low) > 2.2) return powers(low, high, 10, count);
    std::vector<double> ticks;
    for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
        for (const double factor : {1.0, 2.0, 5.0})
            if (factor * power >= low * (1 - 1e-9) && factor * power <= high * (1 + 1e-9))
                ticks.push_back(factor * power);
    return ticks;
}

struct Bounds {
    double low = 0;
    double high = 1;
};

/// The bounds of all values; those of y are widened to round numbers.
Bounds bounds_of(const std::vector<double>& values, const Chart::Axis& axis, bool is_x) {
    if (values.empty()) return is_log(axis) ? Bounds{1, 10} : Bounds{0, 1};
    auto [low, high] = std::ranges::minmax(values);
    if (is_x) return {low, high};
    if (can_show(axis.low, axis)) low = std::min(low, axis.low);
    if (can_show(axis.high, axis)) high = std::max(high, axis.high);
    if (!is_log(axis) && !axis.from_zero) {
        const double step = nice_step(std::max(high - low, 1e-9) / 5);
        return {step * std::floor(low / step + 1e-9), step * std::ceil(high / step - 1e-9)};
    }
    if (!is_log(axis)) {
        const double step = nice_step(std::max(high, 1e-12) / 6);
        return {0, step * std::max(std::ceil(high / step - 1e-9), 1.0)};
    }
    const auto round_down = [](double value) {
        const double power = std::pow(10, std::floor(std::log10(value)));
        return value >= 5 * power ? 5 * power : value >= 2 * power ? 2 * power : power;
    };
    low = round_down(low);
    return {low, std::max(nice_step(high), 2 * low)};
}

std::vector<double> values_of(const Chart& chart, bool is_x) {
    std::vector<double> values;
    for (const Chart::Series& series : chart.series)
        for (const auto* points : {&series.points, &series.loose})
            for (const Chart::Point& point : *points) {
                if (!can_show(point.x, chart.x) || !can_show(point.y, chart.y)) continue;
                values.push_back(is_x ? point.x : point.y);
                if (is_x) continue;
                for (const double end : {point.low, point.high})
                    if (can_show(end, chart.y)) values.push_back(end);
            }
    return values;
}

/// Cuts a label to what has room beside a chart.
std::string short_label(const std::string& label) {
    if (width_in_columns(label) <= kLabelMax) return label;
    std::string_view rest = label;
    std::string_view shown;
    do {
        shown = std::string_view(label).substr(0, label.size() - rest.size());
        rest.remove_prefix(std::max<std::size_t>(utf8_length(rest), 1));
    } while (width_in_columns(std::string_view(label).substr(0, label.size() - rest.size())) <
             kLabelMax);
    return fmt::format("{}…", shown);
}

/// One of four marks, chosen by the colour, so that lines differ not only by colour.
std::string mark(int color, double x, double y, bool hollow) {
    const std::string_view fill = hollow ? "class=\"hollow\"" : "fill=\"currentColor\"";
    switch (color % 4) {
        case 0:
            return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\" {}/>", x, y, fill);
        case 1:
            return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"6.6\" height=\"6.6\" {}/>",
                               x - 3.3, y - 3.3, fill);
        case 2:
            return fmt::format("<path d=\"M{:.1f} {:.1f}l4.2 7.4h-8.4z\" {}/>", x, y - 4.6, fill);
        default:
            return fmt::format("<path d=\"M{:.1f} {:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\" {}/>", x,
                               y - 4.5, fill);
    }
}

/// Draws one chart.
class Painter {
public:
    explicit Painter(const Chart& chart)
        : chart_(chart),
          bounds_x_(bounds_of(values_of(chart, true), chart.x, true)),
          bounds_y_(bounds_of(values_of(chart, false), chart.y, false)),
          right_(kWidth - label_room(chart)),
          x_(chart.x, bounds_x_.low, bounds_x_.high, kLeft + 10, right_ - 6),
          y_(chart.y, bounds_y_.low, bounds_y_.high, kHeight - kBottom, kTop) {}

    std::string draw() {
        text_ = fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n",
                            kWidth, kHeight, html_text(chart_.description));
        axes();
        for (const Chart::Series& series : chart_.series) lines(series);
        labels();
        return text_ + "</svg>\n";
    }

private:
    static double label_room(const Chart& chart) {
        std::size_t longest = 0;
        for (const Chart::Series& series : chart.series)
            longest = std::max(longest, std::min(width_in_columns(series.label), kLabelMax));
        return static_cast<double>(longest) * kLetter + 22;
    }

    bool can_show(const Chart::Point& point) const {
        return lab::can_show(point.x, chart_.x) && lab::can_show(point.y, chart_.y);
    }

    void axes() {
        const double floor = kHeight - kBottom;
        for (const double tick : axis_ticks(bounds_y_.low, bounds_y_.high, chart_.y, 7)) {
            const double y = y_.place(tick);
            text_ += fmt::format(
                "<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>"
                "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                kLeft, y, right_, y, kLeft - 6, y + 4, tick_text(tick, chart_.y.unit));
        }
        for (const double tick : x_ticks()) {
            const double x = x_.place(tick);
            text_ += fmt::format(
                "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>"
                "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                x, floor, x, floor + 4, x, floor + 17, tick_text(tick, chart_.x.unit));
        }
        text_ += fmt::format(
            "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n"
            "<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n"
            "<text class=\"name\" x=\"2\" y=\"14\">{}</text>\n",
            kLeft, floor, right_, floor, (kLeft + right_) / 2, kHeight - 8,
            html_text(chart_.x.label), html_text(chart_.y.label));
    }

    std::vector<double> x_ticks() const {
        if (!chart_.x.only_values) return axis_ticks(bounds_x_.low, bounds_x_.high, chart_.x, 7);
        const std::vector<double> values = values_of(chart_, true);
        std::vector<double> ticks;
        for (const double value : std::set<double>(values.begin(), values.end()))
            if (ticks.empty() || x_.place(value) - x_.place(ticks.back()) >= kTickApart)
                ticks.push_back(value);
        return ticks;
    }

    void lines(const Chart::Series& series) {
        text_ += series.is_ideal
                     ? std::string("<g class=\"ideal\">\n")
                     : fmt::format("<g class=\"s{}\">\n", series.color % Chart::kColors);
        std::string path;
        bool pen_down = false;
        for (const Chart::Point& point : series.points) {
            if (can_show(point))
                path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x_.place(point.x),
                                    y_.place(point.y));
            pen_down = can_show(point);
        }
        if (!path.empty()) text_ += fmt::format("<path class=\"line\" d=\"{}\"/>\n", path);
        if (!series.is_ideal) marks(series);
        text_ += "</g>\n";
    }

    void marks(const Chart::Series& series) {
        for (const auto* points : {&series.loose, &series.points})
            for (const Chart::Point& point : *points) {
                if (!can_show(point)) continue;
                const double x = x_.place(point.x);
                const double y = y_.place(point.y);
                const bool from_low = lab::can_show(point.low, chart_.y);
                if (lab::can_show(point.high, chart_.y))
                    text_ += fmt::format(
                        "<line class=\"whisker\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" "
                        "y2=\"{2:.1f}\"/>",
                        x, from_low ? y_.place(point.low) : y, y_.place(point.high));
                text_ += fmt::format("<g>{}<title>{}</title></g>\n",
                                     mark(series.color, x, y, points == &series.loose),
                                     html_text(point.tip));
            }
    }

    /// Writes each label beside the end of its line, pushed apart where lines end together.
    void labels() {
        struct Label {
            const Chart::Series* series;
            double x, y, at;
        };
        std::vector<Label> labels;
        for (const Chart::Series& series : chart_.series) {
            const auto last =
                std::ranges::find_if(series.points.rbegin(), series.points.rend(),
                                     [this](const Chart::Point& point) { return can_show(point); });
            if (last == series.points.rend()) continue;
            const double y = y_.place(last->y);
            labels.push_back({&series, x_.place(last->x), y, y});
        }
        std::ranges::stable_sort(labels, {}, &Label::at);
        const double lowest = kHeight - kBottom;
        for (std::size_t i = 1; i < labels.size(); ++i)
            labels[i].at = std::max(labels[i].at, labels[i - 1].at + kLabelApart);
        double limit = lowest;
        for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
            label->at = std::min(label->at, limit);
            limit = label->at - kLabelApart;
        }
        for (const Label& label : labels) {
            const bool apart = std::abs(label.at - label.y) > 3 || right_ - label.x > 14;
            const std::string name = label.series->is_ideal
                                         ? "note"
                                         : fmt::format("s{}", label.series->color % Chart::kColors);
            text_ += fmt::format("<g class=\"{}\">", name);
            if (apart)
                text_ += fmt::format("<path class=\"leader\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>",
                                     label.x + 6, label.y, right_ + 7, label.at);
            text_ += fmt::format(
                "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\">{}<title>{}</title></text></g>\n",
                right_ + 9, label.at + 4, html_text(short_label(label.series->label)),
                html_text(label.series->label));
        }
    }

    const Chart& chart_;
    Bounds bounds_x_;
    Bounds bounds_y_;
    double right_;
    Ruler x_;
    Ruler y_;
    std::string text_;
};

}  // namespace

void Chart::add_level(std::string label, double height) {
    Series line;
    line.label = std::move(label);
    line.is_ideal = true;
    double low = kUnknown;
    double high = kUnknown;
    for (const Series& other : series)
        for (const Point& point : other.points) {
            low = std::fmin(low, point.x);
            high = std::fmax(high, point.x);
        }
    line.points = {{low, height, kUnknown, ""}, {high, height, kUnknown, ""}};
    series.insert(series.begin(), std::move(line));
}

bool Chart::has_lines() const {
    return std::ranges::any_of(series, [this](const Series& each) {
        return !each.is_ideal && std::ranges::count_if(each.points, [this](const Point& point) {
                                     return can_show(point.x, x) && can_show(point.y, y);
                                 }) > 1;
    });
}

std::vector<double> axis_ticks(double low, double high, const Chart::Axis& axis,
                               std::size_t count) {
    if (axis.scale == Chart::Scale::logarithmic && axis.unit == Chart::Unit::bytes)
        return powers(low, high, 4, count);
    if (axis.scale == Chart::Scale::logarithmic) return log_ticks(low, high, count);
    if (!(high > low)) return {low};
    const double step = nice_step((high - low) / static_cast<double>(count));
    std::vector<double> ticks;
    for (double number = std::ceil(low / step - 1e-9) + 0.0; number * step <= high * (1 + 1e-9);
         ++number)
        ticks.push_back(number * step);
    return ticks;
}

std::string chart_svg(const Chart& chart) {
    return Painter(chart).draw();
}

std::string html_text(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            case '\'':
                escaped += "&#39;";
                break;
            default:
                escaped += c;
        }
    }
    return escaped;
}

}  // namespace dtrun::lab
