#pragma once

#include <cstdint>

namespace dtrun::lab::rank {

/// Numbers that are the same on every machine, unlike those of <random>'s distributions
/// (SplitMix64, Steele et al. 2014).
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        return mixed ^ (mixed >> 31);
    }
    /// 0 <= number < limit
    std::uint32_t below(std::uint32_t limit) {
        return static_cast<std::uint32_t>(((next() >> 32) * limit) >> 32);
    }
    float uniform(float low, float high) {
        return low + (high - low) * (static_cast<float>(next() >> 40) * 0x1p-24f);
    }
    /// Mean 0, deviation 1, close enough to normal; never beyond 3.5.
    float normal() {
        float sum = 0;
        for (int i = 0; i < 4; ++i) sum += uniform(-1, 1);
        return sum * 0.8660254f;
    }

private:
    std::uint64_t state_;
};

}  // namespace dtrun::lab::rank
