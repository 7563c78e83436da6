#include "launcher/watch/curves.h"

#include "launcher/watch/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

std::optional<Spread> spread_of(std::vector<float> values) {
    if (values.empty()) return std::nullopt;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    const auto [low, high] = std::ranges::minmax_element(values);
    return Spread{*low, *middle, *high};
}

void add_share(std::vector<float>& list, const json::object& of, std::string_view part,
               std::string_view all) {
    const auto some = number_of(of, part), whole_of_it = number_of(of, all);
    if (some && whole_of_it && *whole_of_it > 0)
        list.push_back(static_cast<float>(100 * *some / *whole_of_it));
}

/// Three digits are enough for a line of a hundred pixels.
json::value rounded(float value) {
    if (value == 0 || !std::isfinite(value)) return 0;
    const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 2);
    const double number = std::round(value / unit) * unit;
    if (std::abs(number) >= 100) return static_cast<std::int64_t>(number);
    return std::round(number * 1e6) / 1e6;
}

json::array row_of(const Sample& sample) {
    json::array row{sample.time_s};
    for (const auto& spread : sample.spreads)
        for (const auto part : {&Spread::low, &Spread::middle, &Spread::high})
            row.push_back(spread ? rounded((*spread).*part) : json::value());
    return row;
}

}  // namespace

Sample sample_of(const json::object& view, std::int64_t time_s) {
    std::array<std::vector<float>, kCurves> values;
    const auto of = [&values](Curve curve) -> std::vector<float>& {
        return values[std::to_underlying(curve)];
    };
    for (const json::value& rank : list_of(view, "ranks"))
        if (const auto pace = number_of(object_of(rank), "steps_per_s"))
            of(Curve::pace).push_back(static_cast<float>(*pace));
    for (const json::value& value : list_of(view, "hosts")) {
        const json::object& host = object_of(value);
        add_share(of(Curve::load), host, "load", "processors");
        add_share(of(Curve::memory), host, "memory_bytes", "memory_total_bytes");
        for (const json::value& each : list_of(host, "gpus")) {
            const json::object& gpu = object_of(each);
            if (const auto busy = number_of(gpu, "busy_percent"))
                of(Curve::gpu).push_back(static_cast<float>(*busy));
            add_share(of(Curve::gpu_memory), gpu, "memory_bytes", "memory_total_bytes");
        }
    }
    Sample sample{.time_s = time_s};
    for (std::size_t i = 0; i < kCurves; ++i) sample.spreads[i] = spread_of(std::move(values[i]));
    return sample;
}

void Curves::merge(Point& point, const Sample& sample) {
    for (std::size_t i = 0; i < kCurves; ++i) {
        if (!sample.spreads[i]) continue;
        const Spread& next = *sample.spreads[i];
        std::optional<Spread>& known = point.sample.spreads[i];
        const auto before = static_cast<float>(point.counts[i]++);
        if (!known) {
            known = next;
            continue;
        }
        known->low = std::min(known->low, next.low);
        known->high = std::max(known->high, next.high);
        known->middle = (known->middle * before + next.middle) / (before + 1);
    }
}

void Curves::add(const Sample& sample) {
    for (Level& level : levels_) {
        const std::int64_t begin = sample.time_s - sample.time_s % level.span_s;
        if (level.points.empty() || level.points.back().sample.time_s < begin)
            level.points.push_back({.sample = {.time_s = begin}});
        merge(level.points.back(), sample);
        if (level.points.size() > level.points_max) level.points.pop_front();
    }
}

json::array Curves::since(std::int64_t time_s) const {
    std::vector<const Sample*> found;  // the newest first
    std::int64_t until = std::numeric_limits<std::int64_t>::max();
    for (const Level& level : levels_) {
        for (auto point = level.points.rbegin(); point != level.points.rend(); ++point) {
            const std::int64_t begin = point->sample.time_s;
            // What finer points tell of is not told twice.
            if (begin < time_s ||
                (until != std::numeric_limits<std::int64_t>::max() && begin + level.span_s > until))
                continue;
            found.push_back(&point->sample);
        }
        if (!level.points.empty()) until = std::min(until, level.points.front().sample.time_s);
    }
    json::array rows;
    for (auto sample = found.rbegin(); sample != found.rend(); ++sample)
        rows.push_back(row_of(**sample));
    return rows;
}

std::size_t Curves::points() const {
    std::size_t count = 0;
    for (const Level& level : levels_) count += level.points.size();
    return count;
}

}  // namespace dtrun::watch
