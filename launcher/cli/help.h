#pragma once

#include "launcher/cli/flags.h"

#include <span>
#include <string>
#include <string_view>

namespace dtrun::cli {

/// A title of --help, and the flags that stand under it.
struct HelpSection {
    FlagGroup group{};
    std::string_view title;
};

/// "-a, --all" of "-a --all".
std::string comma_separated(std::string_view names);

/// One row for each flag of a group, in at most kHelpColumns columns.
std::string flag_rows(std::span<const Flag> flags, FlagGroup group);

/// The groups that `flags` has some of, each under its title.
std::string sections(std::span<const Flag> flags, std::span<const HelpSection> sections);

/// Why a flag is refused, and what to write instead.
std::string refusal_of(const Flag& flag);
/// Flags that are refused, each reason once.
std::string refusals(std::span<const Flag> flags);

}  // namespace dtrun::cli
