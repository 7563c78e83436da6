#pragma once

#include "base/strings.h"
#include "launcher/cli/cli.h"

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

using namespace plan;

using namespace cli;

using Environment = std::vector<std::string>;

/// Parses what a person would type after `dtrun`, quotes and all.
inline Result<CommandLine> parse_typed(std::string_view typed, const Environment& caller = {}) {
    return parse_command_line(shell_words(typed).value(), caller);
}

/// The options of a line that must be right.
inline Options options_of(std::string_view typed, const Environment& caller = {}) {
    const auto command = parse_typed(typed, caller);
    if (!command) throw std::runtime_error(command.error().message);
    return command->options;
}

/// What a wrong line is answered with.
inline std::string error_of(std::string_view typed, const Environment& caller = {}) {
    const auto command = parse_typed(typed, caller);
    return command ? "no error" : command.error().message;
}

/// "NAME=value NAME=value".
inline std::string show(const std::vector<Options::Variable>& variables) {
    std::string text;
    for (const auto& [name, value] : variables)
        text.append(text.empty() ? "" : " ").append(name).append("=").append(value);
    return text;
}

}  // namespace dtrun
