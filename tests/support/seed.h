#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>

namespace dtrun {

/// The seed of a test that draws random numbers: DTRUN_SEED if it is set, to replay a run, else a fresh
/// one. The test shows it with whatever fails: INFO("DTRUN_SEED=" << seed).
/// Throws std::invalid_argument or std::out_of_range if DTRUN_SEED is no number of 32 bits.
inline std::uint32_t test_seed() {
    const char* given = std::getenv("DTRUN_SEED");
    if (given == nullptr || *given == '\0') return std::random_device{}();
    const unsigned long seed = std::stoul(given);
    if (seed > UINT32_MAX) throw std::out_of_range("DTRUN_SEED");
    return static_cast<std::uint32_t>(seed);
}

}  // namespace dtrun
