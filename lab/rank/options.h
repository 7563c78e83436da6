#pragma once

#include "lab/rank/pairs.h"
#include "lab/rank/script.h"
#include "lab/rank/sweep.h"

#include <span>
#include <string>
#include <string_view>

namespace dtrun::lab::rank {

enum class Command { help, backends, facts, version_of, sweep, train, pairs, script };

struct RankOptions {
    Command command = Command::help;
    std::string library;  ///< of version_of
    std::string backend = "auto";
    /// For facts: backends over which communicators are made, too.
    std::vector<std::string> backends;
    std::string python = "python3";  ///< of facts: whose packages are looked at
    SweepOptions sweep;
    PairsOptions pairs;
    /// Whether it is a program that is run, and not this one's own operations.
    bool is_program() const { return command == Command::script || command == Command::train; }
    ScriptOptions script;  ///< of train, too, whose words begin behind the trainer
};

extern const char* const kUsage;

/// \param words  of the command line, without the program's name
/// Errc: invalid_input
Result<RankOptions> parse_options(std::span<const std::string_view> words);

}  // namespace dtrun::lab::rank
