// From a word of the command line to the flag it means.

#include "base/strings.h"
#include "launcher/cli_flags.h"
#include "launcher/suggest.h"

#include <algorithm>

namespace dtrun {

namespace {

using std::string_view;

std::vector<FoundFlag> flags_that(const std::function<bool(string_view name)>& condition) {
    std::vector<FoundFlag> found;
    for (const Flag& flag : run_flags()) {
        const std::vector<string_view> names = split(flag.names, ' ');
        const auto name = std::ranges::find_if(names, condition);
        if (name != names.end()) found.push_back({&flag, *name, {}});
    }
    return found;
}

std::vector<FoundFlag> flags_named(string_view name) {
    return flags_that([name](string_view candidate) { return candidate == name; });
}

/// Names that begin with `name` and have as many dashes.
std::vector<FoundFlag> flags_beginning(string_view name) {
    const auto is_long = [](string_view text) { return text.starts_with("--"); };
    return flags_that([=](string_view candidate) {
        return candidate.starts_with(name) && is_long(candidate) == is_long(name);
    });
}

std::unexpected<Error> unknown(string_view name) {
    std::vector<std::string> names;
    for (const Flag& flag : run_flags())
        for (const string_view candidate : split(flag.names, ' ')) names.emplace_back(candidate);
    std::string hint = did_you_mean(name, names);
    if (hint.empty()) hint = "; see dtrun --help";
    return fail(Errc::invalid_input, "unknown option {}{}", name, hint);
}

std::unexpected<Error> ambiguous(string_view name, const std::vector<FoundFlag>& found) {
    std::vector<std::string> names;
    for (const FoundFlag& candidate : found) names.emplace_back(candidate.name);
    return fail(Errc::invalid_input, "{} is short for {}; write more of it", name,
                join_names(names));
}

/// A long name, whole or shortened.
Result<FoundFlag> find_long(string_view name) {
    const auto exact = flags_named(name);
    if (!exact.empty()) return exact.front();
    const auto found = name.size() > 2 ? flags_beginning(name) : std::vector<FoundFlag>{};
    if (found.empty()) return unknown(name);
    if (found.size() > 1) return ambiguous(name, found);
    return found.front();
}

/// "-hostfile", "-Ha:1", "-p=22": `word` up to its '=' is `name`.
Result<FoundFlag> find_short(string_view word, string_view name) {
    for (const auto& spelled : {flags_named(name), flags_named("-" + std::string(name))})
        if (!spelled.empty()) return spelled.front();
    if (name.size() > 3)
        if (const auto found = flags_beginning(name); found.size() == 1) return found.front();
    const auto letter = flags_named(word.substr(0, 2));
    if (word.size() == 2 || letter.empty() || letter.front().flag->value() == Flag::Value::none)
        return unknown(name);
    FoundFlag found = letter.front();
    found.attached = word.substr(2);
    return found;
}

}  // namespace

Result<FoundFlag> find_flag(string_view word) {
    const std::size_t equals = word.find('=');
    std::string name(word.substr(0, equals));
    const bool is_long = name.starts_with("--");
    if (is_long) std::ranges::replace(name, '_', '-');
    auto found = is_long ? find_long(name) : find_short(word, name);
    if (found && !found->attached && equals != string_view::npos)
        found->attached = word.substr(equals + 1);
    return found;
}

}  // namespace dtrun
