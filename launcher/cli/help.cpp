#include "launcher/cli/help.h"

#include "base/strings.h"
#include "base/text_layout.h"

#include <fmt/format.h>

namespace dtrun::cli {

namespace {

constexpr std::size_t kHelpColumn = 28;  // where descriptions begin

std::string left_column(const Flag& flag) {
    const bool apart = flag.value() == Flag::Value::required || flag.value() == Flag::Value::choice;
    return comma_separated(flag.names) + (apart ? " " : "") + std::string(flag.metavar);
}

}  // namespace

std::string comma_separated(std::string_view names) {
    return fmt::format("{}", fmt::join(split(names, ' '), ", "));
}

std::string flag_rows(std::span<const Flag> flags, FlagGroup group) {
    std::string text;
    for (auto flag = flags.begin(); flag != flags.end(); ++flag) {
        if (flag->group != group || flag->help.empty()) continue;
        std::string left = left_column(*flag);
        const auto next = flag + 1;
        if (next != flags.end() && next->help.empty() && next->refused.empty())
            left += ", " + left_column(*next);
        text += two_columns(left, flag->help, kHelpColumn);
    }
    return text;
}

std::string refusal_of(const Flag& flag) {
    if (flag.front.empty()) return std::string(flag.refused);
    return fmt::format("{0}'s: write dtrun {0} ..., {1}", flag.front, flag.refused);
}

std::string refusals(std::span<const Flag> flags) {
    std::string text;
    std::string reason;
    std::string names;
    const auto flush = [&] {
        if (!names.empty()) text += wrap(fmt::format("{}: {}.", names, reason), 2);
        names.clear();
    };
    for (const Flag& flag : flags) {
        if (flag.refused.empty()) continue;
        if (refusal_of(flag) != reason) flush();
        reason = refusal_of(flag);
        names += (names.empty() ? "" : ", ") + comma_separated(flag.names);
    }
    flush();
    return text;
}

std::string sections(std::span<const Flag> flags, std::span<const HelpSection> sections) {
    std::string text;
    for (const auto& [group, title] : sections)
        if (const std::string rows = flag_rows(flags, group); !rows.empty())
            text += fmt::format("\n{}:\n{}", title, rows);
    return text;
}

}  // namespace dtrun::cli
