#include "launcher/cli/completion.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>
#include <optional>

namespace dtrun::cli {
namespace {

using std::string_view;
using Kind = Completion::Kind;

constexpr string_view kBash = R"(# dtrun's completion for bash: source <(dtrun completion bash)
_dtrun() {
    local line kind= description
    COMPREPLY=()
    while IFS=$'\t' read -r line description; do
        if [ -z "$kind" ]; then
            kind=$line
        else
            COMPREPLY+=("$line")
        fi
    done < <(dtrun completion bash-words "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    local word=${COMP_WORDS[COMP_CWORD]}
    [ "$word" = = ] && word=
    case $kind in
    files | rest) compopt -o default ;;
    programs) COMPREPLY+=($(compgen -c -- "$word")) ;;
    esac
    # What goes on behind '=' is not finished.
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -F _dtrun dtrun
)";

constexpr string_view kZsh = R"(#compdef dtrun
# dtrun's completion for zsh: source <(dtrun completion zsh), after compinit
_dtrun() {
    local -a lines found
    local kind line
    lines=("${(@f)$(dtrun completion zsh-words "$LBUFFER" 2>/dev/null)}")
    kind=$lines[1]
    for line in "${(@)lines[2,-1]}"; do
        found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    case $kind in
    files) _files ;;
    rest) _default ;;
    programs) _alternative 'words:word:{ _describe word found }' 'programs:program:_command_names -e' ;;
    *) _describe -V dtrun found ;;
    esac
}
compdef _dtrun dtrun
)";

constexpr string_view kFish = R"(# dtrun's completion for fish: dtrun completion fish | source
function __dtrun_complete
    set -l lines (dtrun completion fish-words (commandline -cp | string collect) 2>/dev/null)
    set -l kind $lines[1]
    for line in $lines[2..-1]
        echo $line
    end
    switch $kind
        case files rest
            __fish_complete_path (commandline -ct)
        case programs
            __fish_complete_command
    end
end
complete -c dtrun -f -a '(__dtrun_complete)'
)";

/// The first sentence of a help text, for a list.
std::string short_help(string_view help) {
    const std::size_t end = std::min({help.find(';'), help.find(" (default"), help.find(". ")});
    return std::string(help.substr(0, end));
}

/// "[report|kill]" has two words, "FILE" none.
std::vector<string_view> choices_of(string_view metavar) {
    while (metavar.starts_with('[') || metavar.starts_with('=')) metavar.remove_prefix(1);
    while (metavar.ends_with(']')) metavar.remove_suffix(1);
    if (metavar.find('|') == string_view::npos) return {};
    std::vector<string_view> choices = split(metavar, '|');
    // Names of values, such as ADDRESS, cannot be typed.
    std::erase_if(choices, [](string_view choice) {
        return choice.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ[]:") != string_view::npos;
    });
    return choices;
}

/// What a flag takes, or the last one of a list. \param begin  what is typed of it
Completion value_of(const Flag& flag, string_view begin) {
    Completion completion;
    const auto choices = choices_of(flag.words.empty() ? flag.metavar : flag.words);
    const bool is_list = flag.metavar.ends_with(",...");
    const std::size_t comma = is_list ? begin.rfind(',') : string_view::npos;
    const std::size_t before = comma == string_view::npos ? 0 : comma + 1;
    for (const string_view choice : choices)
        if (choice.starts_with(begin.substr(before)))
            completion.words.emplace_back(fmt::format("{}{}", begin.substr(0, before), choice), "");
    constexpr string_view kFiles[] = {"FILE", "DIR", "PATH"};
    const bool is_file = std::ranges::any_of(
        kFiles, [&flag](string_view name) { return flag.metavar.find(name) != string_view::npos; });
    completion.kind = !choices.empty() ? Kind::words : is_file ? Kind::files : Kind::nothing;
    return completion;
}

/// Names of flags that begin so; one that takes a value with '=' alone ends in '='.
Completion names_of(std::span<const Flag> flags, string_view begin) {
    Completion completion{.kind = Kind::words};
    for (const Flag& flag : flags) {
        if (!flag.refused.empty() || flag.group == FlagGroup::foreign) continue;
        for (const string_view name : split(flag.names, ' ')) {
            if (!name.starts_with(begin) || (name.size() < 4 && begin.size() < 2)) continue;
            completion.words.emplace_back(name, short_help(flag.help));
        }
    }
    return completion;
}

/// Which operand of a command is a job.
bool takes_job(string_view command, std::size_t operands) {
    constexpr string_view kOfJobs[] = {"top", "end", "stacks"};
    return operands == 0 && std::ranges::find(kOfJobs, command) != std::end(kOfJobs);
}

/// Or one that may have ended.
bool takes_record(string_view command, std::size_t operands) {
    return operands == 0 && (command == "logs" || command == "attach");
}

bool takes_program(string_view command) {
    constexpr string_view kOfPrograms[] = {"run", "join", "torchrun", "deepspeed", "mpirun"};
    return std::ranges::find(kOfPrograms, command) != std::end(kOfPrograms);
}

bool is_assignment(string_view word) {
    return word.find('=') != string_view::npos && !is_option(word);
}

Completion operand_of(Commands commands, const Command& command, string_view begin,
                      std::size_t operands, bool is_first) {
    Completion completion;
    if (is_first)
        for (const Command& each : commands)
            if (each.run != nullptr && each.name.starts_with(begin))
                completion.words.emplace_back(each.name, each.summary);
    if (command.name == "help") {
        completion.kind = Kind::words;
        for (const Command& each : commands)
            if (operands == 0 && each.name.starts_with(begin))
                completion.words.emplace_back(each.name, each.summary);
    } else if (takes_job(command.name, operands)) {
        completion.kind = Kind::jobs;
    } else if (takes_record(command.name, operands)) {
        completion.kind = Kind::records;
    } else if (takes_program(command.name)) {
        // Behind `dtrun` a command is meant, as far as there is one that begins so.
        completion.kind = completion.words.empty() ? Kind::programs : Kind::words;
    } else {
        completion.kind = Kind::files;
    }
    return completion;
}

}  // namespace

Completion complete(Commands commands, Words words) {
    const Command* command = &commands.front();
    Words typed = words.first(words.size() - 1);
    const string_view last = words.back();
    const bool is_first = typed.empty();
    if (const Command* const named = find_command(commands, typed)) {
        command = named;
        typed = typed.subspan(1);
    }
    const std::span<const Flag> flags =
        command->flags != nullptr ? command->flags() : std::span<const Flag>();
    std::size_t operands = 0;
    for (std::size_t i = 0; i < typed.size(); ++i) {
        const string_view word = typed[i];
        if (word == "--" || !is_option(word)) {
            const bool is_program = takes_program(command->name) && word != "--";
            if (is_program && !is_assignment(word)) return {.kind = Kind::rest};
            operands += word == "--" || is_program ? 0 : 1;
            continue;
        }
        const Flag* const flag = find_flag(flags, word.substr(0, word.find('=')));
        const bool takes_next = flag != nullptr && word.find('=') == string_view::npos &&
                                flag->value() == Flag::Value::required;
        if (!takes_next) continue;
        if (i + 1 == typed.size()) return value_of(*flag, last);
        ++i;
    }
    if (!is_option(last) && last != "-")
        return operand_of(commands, *command, last, operands, is_first);
    const std::size_t equals = last.find('=');
    if (equals == string_view::npos) return names_of(flags, last);
    const Flag* const flag = find_flag(flags, last.substr(0, equals));
    if (flag == nullptr) return {};
    Completion completion = value_of(*flag, last.substr(equals + 1));
    completion.begin = last.substr(0, equals + 1);
    return completion;
}

Result<std::string> completion_script(string_view shell) {
    for (const auto& [name, script] :
         {std::pair(string_view("bash"), kBash), {"zsh", kZsh}, {"fish", kFish}})
        if (shell == name) return std::string(script);
    return fail(Errc::invalid_input, "there is completion for bash, zsh and fish, not for '{}'",
                shell);
}

std::string completion_lines(const Completion& completion, bool of_value) {
    constexpr string_view kNames[] = {"words", "files", "programs", "rest",
                                      "jobs",  "jobs",  "nothing"};
    std::string text = fmt::format("{}\n", kNames[static_cast<std::size_t>(completion.kind)]);
    for (const auto& [word, description] : completion.words)
        text += fmt::format("{}{}\t{}\n", of_value ? "" : completion.begin, word, description);
    return text;
}

}  // namespace dtrun::cli
