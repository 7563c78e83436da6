#pragma once
// For ranks that have what users have, in their C++17.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

inline void require(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(std::string("not so: ") + what);
}

#define REQUIRE(condition) require(static_cast<bool>(condition), #condition)

inline std::vector<float> numbers(std::size_t count, std::uint32_t rank) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = std::sin(static_cast<float>(i + 1) * (static_cast<float>(rank) + 0.5F));
    return values;
}

/// Of sums of all ranks' numbers.
inline double relative_error(const std::vector<float>& values, std::uint32_t ranks) {
    double wrong = 0;
    double all = 0;
    std::vector<double> sums(values.size());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto part = numbers(values.size(), rank);
        for (std::size_t i = 0; i < values.size(); ++i) sums[i] += static_cast<double>(part[i]);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += std::pow(static_cast<double>(values[i]) - sums[i], 2);
        all += sums[i] * sums[i];
    }
    return std::sqrt(wrong / std::max(all, 1e-30));
}
