#pragma once

#include "tests/support/seed.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace dtrun {

inline bool is_replayed() {
    return std::getenv("DTRUN_SEED") != nullptr;
}

/// DTRUN_SEED, or those that corpus.txt keeps: a new one that finds a fault must not fail another change.
/// \param of  whose seeds: the first word of their lines
inline std::vector<std::uint32_t> seeds_of(const std::string& of) {
    if (is_replayed()) return {test_seed()};
    std::vector<std::uint32_t> kept;
    std::ifstream corpus(SIMULATION_CORPUS);
    for (std::string line; std::getline(corpus, line);)
        if (line.starts_with(of + " "))
            kept.push_back(static_cast<std::uint32_t>(std::stoul(line.substr(of.size() + 1))));
    return kept;
}

}  // namespace dtrun
