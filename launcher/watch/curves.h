#pragma once

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace dtrun::watch {

/// What is drawn over time, in the order of Sample::spreads.
enum class Curve : std::uint8_t { pace, gpu, gpu_memory, load, memory };
inline constexpr std::size_t kCurves = 5;

/// A number of many ranks, GPUs or hosts.
struct Spread {
    float low = 0, middle = 0, high = 0;
};

/// How a job is at a moment: steps/s of its ranks; and in percent how busy GPUs and how full their memories are,
/// the load of hosts per processor, and how full their memories are. None: nobody tells.
struct Sample {
    std::int64_t time_s = 0;  ///< since 1970
    std::array<std::optional<Spread>, kCurves> spreads{};
};

/// Of a view of JobRecord::view(). Pure.
Sample sample_of(const boost::json::object& view, std::int64_t time_s);

/// How a job was in the last 24 hours, in less than 100 KiB: the last half hour each 5 s, before that each minute for
/// three hours, before that each 8 minutes. A point is of the time that begins with it: its low and high are the
/// extremes, and its middle the mean of that time.
class Curves {
public:
    /// Later than the one before.
    void add(const Sample& sample);
    /// Points from then on, the oldest first, each [time, low, middle, high, low, …], where null is not known.
    boost::json::array since(std::int64_t time_s) const;
    std::size_t points() const;

private:
    struct Point {
        Sample sample;
        std::array<std::uint32_t, kCurves> counts{};
    };
    struct Level {
        std::int64_t span_s;
        std::size_t points_max;
        std::deque<Point> points{};
    };
    static void merge(Point& point, const Sample& sample);

    std::array<Level, 3> levels_{{{5, 360}, {60, 180}, {480, 180}}};
};

}  // namespace dtrun::watch
