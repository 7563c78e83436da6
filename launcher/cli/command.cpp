#include "launcher/cli/command.h"

#include "base/log.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "base/text_layout.h"
#include "launcher/plan/exit_code.h"

#include <dtrun_version.h>
#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace dtrun::cli {

extern const char* const kCommit;  // of a file that CMake makes; empty: the sources have none

namespace {

using std::string_view;

constexpr std::size_t kSummaryColumn = 27;  // where summaries begin

/// How a person asks for it: a topic has nothing but its help.
std::string typed(const Command& command) {
    return fmt::format("dtrun {}{}", command.run == nullptr ? "help " : "", command.name);
}

}  // namespace

const Command* find_command(Commands commands, Words words) {
    if (words.empty()) return nullptr;
    const auto found = std::ranges::find(commands, words.front(), &Command::name);
    return found != commands.end() && found->run != nullptr ? &*found : nullptr;
}

std::string command_rows(Commands commands) {
    std::string text;
    for (const Command& command : commands)
        if (!command.summary.empty())
            text += two_columns(typed(command), command.summary, kSummaryColumn);
    return text;
}

Result<std::string> help_on(Commands commands, Words words) {
    if (words.empty()) return commands.front().help();
    const auto found = std::ranges::find(commands, words.front(), &Command::name);
    if (found != commands.end()) return found->help();
    std::vector<std::string> names;
    for (const Command& command : commands) names.emplace_back(command.name);
    return fail(Errc::invalid_input, "no help on '{}'{}; there is help on {}", words.front(),
                did_you_mean(words.front(), names), join_names(names, names.size()));
}

std::string version_text() {
    std::vector<std::string_view> build{kCommit, DTRUN_BUILD_TYPE, DTRUN_PROCESSOR};
    std::erase(build, "");
    return fmt::format("dtrun {} ({})\n", DTRUN_VERSION, fmt::join(build, ", "));
}

int complain(const Error& error) {
    log::error("{}", error.message);
    return plan::kExitUsage;
}

int print(const std::string& text) {
    const bool written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (written) return 0;
    if (errno == EPIPE) return kExitReaderGone;
    log::error("standard output: {}", strerror(errno));
    return plan::kExitInternal;
}

std::string text_of(Ask asked, std::string (*help)()) {
    return asked == Ask::version ? version_text() : help();
}

}  // namespace dtrun::cli
