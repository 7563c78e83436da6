#include "launcher/cli/misspelt.h"

#include "base/process/command_output.h"
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

constexpr std::size_t kTypedBytesMax = 300;  // of a command line in a message

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

/// The next option, and how many words it takes.
struct NextOption {
    Result<std::optional<FoundFlag>> found;
    std::size_t words = 0;
};

NextOption next_option(Words words, std::span<const Flag> flags) {
    OptionReader reader(words, flags, "dtrun");
    NextOption next{reader.next()};
    next.words = words.size() - reader.rest().size();
    return next;
}

struct FlagOfFront {
    const Flag* flag = nullptr;
    std::string name;  ///< as it is typed
};

/// The first flag of another launcher for which there is a command; nothing: none, or what stands before is wrong.
std::optional<FlagOfFront> find_flag_of_front(Words words) {
    const std::span<const Flag> flags = run_flags().flags();
    for (std::size_t at = 0; at < words.size();) {
        const std::string name = words[at].substr(0, words[at].find('='));
        for (const std::string& dashed : {name, "-" + name})
            if (const Flag* const flag = find_flag(flags, dashed); flag && !flag->front.empty())
                return FlagOfFront{flag, name};
        const NextOption next = next_option(words.subspan(at), flags);
        if (!next.found || !*next.found) break;
        at += next.words;
    }
    return std::nullopt;
}

/// Program and arguments; what is given to variables before that may be secrets.
std::string program_text(Words words) {
    std::string text;
    bool is_before = true;
    for (const std::string& word : words) {
        const string_view name = string_view(word).substr(0, word.find('='));
        is_before = is_before && name.size() < word.size() && plan::is_variable_name(name);
        text += is_before ? fmt::format(" -x {}=...", name) : " " + shell_quote(word);
    }
    return text;
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

std::optional<Error> front_end_meant(Commands commands, Words words) {
    const auto found = find_flag_of_front(words);
    if (!found) return std::nullopt;
    const Flag& flag = *found->flag;
    const auto command = std::ranges::find(commands, flag.front, &Command::name);
    if (command == commands.end() || command->flags == nullptr) return std::nullopt;
    const std::span<const Flag> flags = command->flags();
    std::string typed;
    std::vector<std::string> refused;
    std::size_t at = 0;
    for (;;) {
        const Words rest = words.subspan(at);
        const NextOption next = next_option(rest, flags);
        if (next.found && !*next.found) break;
        if (next.found) {
            const auto& [row, name, value] = **next.found;
            if (flags[row].sets_variable)
                typed += fmt::format(" {} {}", name, shell_quote(shown_value(flags[row], value)));
            else
                for (const std::string& word : rest.first(next.words))
                    typed += " " + shell_quote(word);
            at += next.words;
            continue;
        }
        const NextOption here = next_option(rest, run_flags().flags());
        if (!here.found || !*here.found) return std::nullopt;
        refused.emplace_back((*here.found)->name);
        at += here.words;
    }
    std::string without;
    if (!refused.empty()) without = fmt::format(" (it has no {})", join_names(refused));
    return Error{
        Errc::invalid_input,
        fmt::format("{} is {}'s: write dtrun {}{}{}; {}", found->name, flag.front, flag.front,
                    escaped(typed + program_text(words.subspan(at)), kTypedBytesMax), without,
                    flag.refused)};
}

std::optional<std::string> note_on_program(Words words, plan::EnvironmentView environment) {
    const auto* const other = find_elsewhere(words);
    if (other == nullptr || !plan::is_on_path(words[0], environment)) return std::nullopt;
    return fmt::format("{} is run as a program, which is on PATH; {} is what it is elsewhere",
                       words[0], other->second);
}

}  // namespace dtrun::cli
