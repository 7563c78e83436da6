#include "launcher/cli/misspelt.h"

#include "base/command_output.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "launcher/cli/run.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::cli {
namespace {

using std::string_view;

/// Commands of other launchers and batch systems, and what to type here.
constexpr std::pair<string_view, string_view> kElsewhere[] = {{"stop", "dtrun end"},
                                                              {"cancel", "dtrun end"},
                                                              {"kill", "dtrun end"},
                                                              {"abort", "dtrun end"},
                                                              {"list", "dtrun jobs"},
                                                              {"ls", "dtrun jobs"},
                                                              {"ps", "dtrun jobs"},
                                                              {"queue", "dtrun jobs"},
                                                              {"history", "dtrun jobs --all"},
                                                              {"log", "dtrun logs"},
                                                              {"submit", "dtrun run"},
                                                              {"launch", "dtrun run"},
                                                              {"start", "dtrun run"},
                                                              {"check", "dtrun doctor"},
                                                              {"diagnose", "dtrun doctor"},
                                                              {"init", "dtrun demo"},
                                                              {"setup", "dtrun demo"},
                                                              {"quickstart", "dtrun demo"},
                                                              {"tutorial", "dtrun demo"},
                                                              {"example", "dtrun demo"},
                                                              {"examples", "dtrun demo"},
                                                              {"hello", "dtrun demo"},
                                                              {"web", "dtrun --web ..."},
                                                              {"dashboard", "dtrun --web ..."},
                                                              {"install", "dtrun install-links"}};

const std::pair<string_view, string_view>* find_elsewhere(Words words) {
    if (words.empty()) return nullptr;
    const auto* const found = std::ranges::find(kElsewhere, string_view(words[0]),
                                                &std::pair<string_view, string_view>::first);
    return found == std::end(kElsewhere) ? nullptr : found;
}

}  // namespace

std::optional<Error> misspelt_command(Commands commands, Words words,
                                      plan::EnvironmentView environment) {
    if (words.empty() || is_option(words[0])) return std::nullopt;
    const std::string& word = words[0];
    if (word.find_first_of("/=") != std::string::npos) return std::nullopt;
    const auto* const other = find_elsewhere(words);
    if (word == "kill")
        return Error{
            Errc::invalid_input,
            "kill: a job is ended by dtrun end JOB, and dtrun jobs lists them; the program "
            "of this name is run by dtrun run kill"};
    // A program that lies here is meant: the job says how it is written.
    if (plan::is_on_path(word, environment) || is_program(word)) return std::nullopt;
    const std::string neither =
        fmt::format("{}: neither a command of dtrun nor a program on PATH", word);
    if (other != nullptr)
        return Error{Errc::not_found, fmt::format("{}; {} is that here", neither, other->second)};
    std::vector<std::string> names;
    for (const Command& command : commands)
        if (command.run != nullptr) names.emplace_back(command.name);
    std::string hint = did_you_mean(word, names);
    if (hint.empty()) return std::nullopt;
    hint.insert(hint.rfind(' ') + 1, "dtrun ");
    return Error{Errc::not_found, neither + hint};
}

std::optional<std::string> note_on_program(Words words, plan::EnvironmentView environment) {
    const auto* const other = find_elsewhere(words);
    if (other == nullptr || !plan::is_on_path(words[0], environment)) return std::nullopt;
    return fmt::format("{} is run as a program, which is on PATH; {} is what it is elsewhere",
                       words[0], other->second);
}

}  // namespace dtrun::cli
