#pragma once

#include "lab/rank/pairs.h"
#include "lab/rank/script.h"
#include "lab/rank/sweep.h"
#include "lab/rank/trainer.h"

#include <span>
#include <string>
#include <string_view>

namespace dtrun::lab::rank {

enum class Command { help, facts, version_of, sweep, train, pairs, script };

struct RankOptions {
    Command command = Command::help;
    std::string library;  ///< of version_of
    std::string backend = "auto";
    /// For facts: backends over which communicators are made, too.
    std::vector<std::string> backends;
    SweepOptions sweep;
    TrainOptions train;
    PairsOptions pairs;
    ScriptOptions script;
    Algorithm algorithm;
    std::string data;  ///< folder with MNIST's files; empty: generated digits
};

extern const char* const kUsage;

/// \param words  of the command line, without the program's name
/// Errc: invalid_input
Result<RankOptions> parse_options(std::span<const std::string_view> words);

}  // namespace dtrun::lab::rank
