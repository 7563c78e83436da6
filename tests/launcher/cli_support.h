#pragma once

#include "base/strings.h"
#include "launcher/cli/run.h"
#include "launcher/commands/contracts_command.h"
#include "launcher/commands/history_commands.h"
#include "launcher/commands/hosts_command.h"
#include "launcher/commands/join.h"
#include "launcher/commands/look_commands.h"
#include "launcher/commands/see_commands.h"
#include "launcher/commands/serve.h"
#include "launcher/commands/store_command.h"
#include "launcher/frontends/deepspeed.h"
#include "launcher/frontends/mpirun.h"
#include "launcher/frontends/torchrun.h"

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

using namespace plan;

using namespace cli;

using Environment = std::vector<std::string>;

/// Parses what a person would type after `dtrun`, quotes and all, if it is a job that starts.
inline Result<RunCommand> parse_typed(std::string_view typed, const Environment& caller = {}) {
    const std::vector<std::string> all = shell_words(typed).value();
    const Words words(all);
    const std::string name = words.empty() ? "" : words.front();
    if (name == "run") return parse_run(words.subspan(1), caller);
    if (name == "join") return commands::parse_join(words.subspan(1), caller);
    if (name == "torchrun") return frontends::parse_torchrun(words.subspan(1), caller);
    if (name == "mpirun") return frontends::parse_mpirun(words.subspan(1), caller);
    if (name == "deepspeed") return frontends::parse_deepspeed(words.subspan(1), caller);
    return parse_run(words, caller);
}

/// The options of a line that must be right.
inline Options options_of(std::string_view typed, const Environment& caller = {}) {
    const auto command = parse_typed(typed, caller);
    if (!command) throw std::runtime_error(command.error().message);
    return command->options;
}

template <class T>
std::string message_of(const Result<T>& result) {
    return result ? "no error" : result.error().message;
}

/// What a wrong line is answered with.
inline std::string error_of(std::string_view typed, const Environment& caller = {}) {
    const std::vector<std::string> all = shell_words(typed).value();
    const std::string name = all.empty() ? "" : all.front();
    const Words words = Words(all).subspan(all.empty() ? 0 : 1);
    if (name == "serve") return message_of(commands::parse_serve(words));
    if (name == "store") return message_of(commands::parse_store(words));
    if (name == "status") return message_of(commands::parse_status(words));
    if (name == "hosts") return message_of(commands::parse_hosts_command(words));
    if (name == "contracts") return message_of(commands::parse_contracts(words));
    return message_of(parse_typed(typed, caller));
}

/// "NAME=value NAME=value".
inline std::string show(const std::vector<Options::Variable>& variables) {
    std::string text;
    for (const auto& [name, value] : variables)
        text.append(text.empty() ? "" : " ").append(name).append("=").append(value);
    return text;
}

}  // namespace dtrun
