#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cli {

/// An option of `dtrun run` that is given before anything is typed.
struct Default {
    std::string flag;  ///< its first name in the table: "--grace"
    std::string word;  ///< as it would be typed: "--grace=10"
    std::string
        source;  ///< where it stands: "/home/al/.config/dtrun/config.yaml:3:8", or DTRUN_OPTIONS
    int layer =
        0;  ///< a higher one wins: 0 the machine's file, 1 the user's, 2 a profile, 3 DTRUN_OPTIONS
    std::string beaten_by{};  ///< the source of what wins over it; empty: it counts
};

/// The options that the machine's file, the user's, a profile of these, and DTRUN_OPTIONS set, in this order. A flag
/// that a higher layer sets, or excludes, is marked as beaten, unless it is one that adds up, as -x.
/// \param flags    those of `dtrun run`
/// \param profile  empty: DTRUN_PROFILE, if that is set
/// Errc: invalid_input (no such option or profile, or what is no YAML; the message begins with the place)
Result<std::vector<Default>> read_defaults(std::span<const Flag> flags,
                                           plan::EnvironmentView environment,
                                           std::string_view profile);

/// Files that read_defaults() looks for, the machine's first.
std::vector<std::string> default_files(plan::EnvironmentView environment);

/// Those of the defaults that count for a command whose flags are `flags`, where this is typed.
/// \param all_flags  those of `dtrun run`
/// Errc: as read_defaults()
Result<std::vector<Default>> defaults_for(Words typed, std::span<const Flag> flags,
                                          std::span<const Flag> all_flags,
                                          plan::EnvironmentView environment);

/// What is typed, behind the defaults that count. Errc: as read_defaults(), and those of setters
template <class D>
Result<std::vector<std::string>> with_defaults(Words typed, const FlagTable<D>& table,
                                               std::span<const Flag> all_flags,
                                               plan::EnvironmentView environment) {
    const auto defaults = defaults_for(typed, table.flags(), all_flags, environment);
    if (!defaults) return std::unexpected(defaults.error());
    std::vector<std::string> words;
    for (const Default& one : *defaults) {
        D alone;  // so that a wrong value is told with its place
        const auto read = read_options(table, Words(&one.word, 1), alone);
        if (!read) return fail(read.error(), "{}", one.source);
        words.push_back(one.word);
    }
    words.insert(words.end(), typed.begin(), typed.end());
    return words;
}

}  // namespace dtrun::cli
