#pragma once

#include "lab/rank/sweep.h"
#include "lab/rank/trainer.h"

#include <span>
#include <string>
#include <string_view>

namespace dtrun::lab::rank {

/// How gradients travel.
struct Algorithm {
    std::string name;  ///< as it was given
    bool serial = false;
    std::optional<Format> format;
    bool feedback = false;  ///< what compression has cost is made good in the next step
    bool stochastic = false;
};

/// "serial", "parallel", or a compression: "fp16", "int8", "fp8-e4m3-unscaled", ... Scaled 8-bit
/// formats have error feedback; behind any of them "-ef" and "-noef" ask for it or not, and
/// "-stochastic" for random rounding. Errc: invalid_input
Result<Algorithm> parse_algorithm(std::string_view name);

enum class Command { help, facts, version_of, sweep, train };

struct RankOptions {
    Command command = Command::help;
    std::string library;  ///< of version_of
    std::string backend = "auto";
    /// facts: communicators are made over each of them, too.
    std::vector<std::string> backends;
    SweepOptions sweep;
    TrainOptions train;
    Algorithm algorithm;
    std::string data;  ///< folder with MNIST's files; empty: generated digits
};

extern const char* const kUsage;

/// \param words  of the command line, without the program's name
/// Errc: invalid_input
Result<RankOptions> parse_options(std::span<const std::string_view> words);

}  // namespace dtrun::lab::rank
