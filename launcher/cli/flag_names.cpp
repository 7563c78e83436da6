// From a word of the command line to the flag it means.

#include "base/strings.h"
#include "base/suggest.h"
#include "lab/plan/flags.h"
#include "launcher/cli/flags.h"
#include "launcher/fronts/fronts.h"

#include <algorithm>

namespace dtrun::cli {

namespace {

using std::string_view;

std::vector<FoundFlag> flags_that(const Flags& flags,
                                  const std::function<bool(string_view name)>& condition) {
    std::vector<FoundFlag> found;
    for (const Flag& flag : flags) {
        const std::vector<string_view> names = split(flag.names, ' ');
        const auto name = std::ranges::find_if(names, condition);
        if (name != names.end()) found.push_back({&flag, *name, {}});
    }
    return found;
}

/// Programs differ in how they spell the blanks of a name.
std::string with_dashes(string_view name) {
    std::string text(name);
    std::ranges::replace(text, '_', '-');
    return text;
}

std::vector<FoundFlag> flags_named(const Flags& flags, string_view name) {
    const std::string wanted = with_dashes(name);
    return flags_that(
        flags, [&wanted](string_view candidate) { return with_dashes(candidate) == wanted; });
}

/// Names that begin with `name` and have as many dashes.
std::vector<FoundFlag> flags_beginning(const Flags& flags, string_view name) {
    const auto is_long = [](string_view text) { return text.starts_with("--"); };
    return flags_that(flags, [=](string_view candidate) {
        return with_dashes(candidate).starts_with(name) && is_long(candidate) == is_long(name);
    });
}

std::unexpected<Error> unknown(const Flags& flags, string_view name) {
    std::vector<std::string> names;
    for (const Flag& flag : flags)
        for (const string_view candidate : split(flag.names, ' '))
            names.push_back(with_dashes(candidate));
    std::string hint = did_you_mean(name, names);
    for (const Flag& flag : flags)
        for (const string_view candidate : split(flag.names, ' '))
            if (hint.ends_with(" " + with_dashes(candidate) + "?"))
                hint.replace(hint.size() - candidate.size() - 1, candidate.size(), candidate);
    const string_view command = &flags == &fronts::torchrun_flags()    ? "dtrun torchrun"
                                : &flags == &fronts::deepspeed_flags() ? "dtrun deepspeed"
                                : &flags == &lab::bench_flags()        ? "dtrun bench"
                                                                       : "dtrun";
    if (hint.empty()) hint = fmt::format("; see {} --help", command);
    return fail(Errc::invalid_input, "unknown option {}{}", name, hint);
}

std::unexpected<Error> ambiguous(string_view name, const std::vector<FoundFlag>& found) {
    std::vector<std::string> names;
    for (const FoundFlag& candidate : found) names.emplace_back(candidate.name);
    return fail(Errc::invalid_input, "{} is short for {}; write more of it", name,
                join_names(names));
}

/// A long name, whole or shortened.
Result<FoundFlag> find_long(const Flags& flags, string_view name) {
    const auto exact = flags_named(flags, name);
    if (!exact.empty()) return exact.front();
    const auto found = name.size() > 2 ? flags_beginning(flags, name) : std::vector<FoundFlag>{};
    if (found.empty()) return unknown(flags, name);
    if (found.size() == 1) return found.front();
    const auto is_native = [](const FoundFlag& each) {
        return each.flag->group == FlagGroup::native;
    };
    const auto native = std::ranges::find_if(found, is_native);
    if (std::ranges::count_if(found, is_native) == 1) return *native;
    return ambiguous(name, found);
}

/// "-hostfile", "-Ha:1", "-p=22": `word` up to its '=' is `name`.
Result<FoundFlag> find_short(const Flags& flags, string_view word, string_view name) {
    for (const auto& spelled :
         {flags_named(flags, name), flags_named(flags, "-" + std::string(name))})
        if (!spelled.empty()) return spelled.front();
    if (name.size() > 3)
        if (const auto found = flags_beginning(flags, name); found.size() == 1)
            return found.front();
    const auto letter = flags_named(flags, word.substr(0, 2));
    if (word.size() == 2 || letter.empty() || letter.front().flag->value() == Flag::Value::none)
        return unknown(flags, name);
    FoundFlag found = letter.front();
    found.attached = word.substr(2);
    return found;
}

}  // namespace

Result<FoundFlag> find_flag(const Flags& flags, string_view word) {
    const std::size_t equals = word.find('=');
    std::string name(word.substr(0, equals));
    const bool is_long = name.starts_with("--");
    if (is_long) name = with_dashes(name);
    auto found = is_long ? find_long(flags, name) : find_short(flags, word, name);
    if (found && !found->attached && equals != string_view::npos)
        found->attached = word.substr(equals + 1);
    return found;
}

Result<void> OptionReader::read(Draft& draft) {
    const auto is_option = [](string_view word) { return word.size() > 1 && word.front() == '-'; };
    while (at_ < words_.size() && is_option(words_[at_]) && !ended_) {
        ended_ = words_[at_] == "--";
        if (ended_)
            ++at_;
        else if (const auto done = option(draft); !done)
            return done;
        if (draft.kind == CommandLine::Kind::help || draft.kind == CommandLine::Kind::version ||
            draft.kind == CommandLine::Kind::check_build)
            return {};
    }
    return {};
}

Result<void> OptionReader::option(Draft& draft) {
    const auto found = find_flag(flags_, words_[at_++]);
    if (!found) return std::unexpected(found.error());
    const Flag& flag = *found->flag;
    if (!flag.refused.empty())
        return fail(Errc::invalid_input, "{} is refused: {}", found->name, flag.refused);
    const auto value = option_value(*found);
    if (!value) return std::unexpected(value.error());
    const bool is_nothing = value->empty() && flag.value() == Flag::Value::required;
    if (is_nothing) return {};  // as if a script's variable had not been written there
    const auto applied = flag.apply(draft, *value);
    if (!applied) return fail(applied.error(), "{}", found->name);
    return {};
}

/// The next word if it is one that the flag takes.
Result<string_view> OptionReader::chosen_word(const FoundFlag& found) {
    if (at_ == words_.size()) return string_view{};
    const string_view metavar = found.flag->metavar;
    const auto choices = split(metavar.substr(1, metavar.size() - 2), '|');
    const string_view next = words_[at_];
    if (std::ranges::find(choices, next) != choices.end()) return words_[at_++];
    if (next.find('/') != string_view::npos) return string_view{};
    const std::vector<std::string> names(choices.begin(), choices.end());
    if (const std::string hint = did_you_mean(next, names); !hint.empty())
        return fail(Errc::invalid_input, "{}: '{}' is not one of {}{} (-- before a program)",
                    found.name, next, join_names(names), hint);
    return string_view{};
}

Result<string_view> OptionReader::option_value(const FoundFlag& found) {
    const Flag::Value kind = found.flag->value();
    const bool may_be_empty = found.flag->group == FlagGroup::native;
    if (found.attached) {
        if (kind == Flag::Value::none)
            return fail(Errc::invalid_input, "{} takes no value", found.name);
        if (found.attached->empty() && !may_be_empty)
            return fail(Errc::invalid_input, "{}: the value is empty", found.name);
        return *found.attached;
    }
    if (kind == Flag::Value::choice) return chosen_word(found);
    if (kind != Flag::Value::required) return string_view{};
    if (at_ == words_.size())
        return fail(Errc::invalid_input, "{} needs a value: {} {}", found.name, found.name,
                    found.flag->metavar);
    const string_view next = words_[at_];
    const bool is_number =
        next.size() > 1 && (next[1] == '.' || (next[1] >= '0' && next[1] <= '9'));
    const bool is_arguments = found.flag->is_arguments && next.find(' ') != string_view::npos;
    if (next.size() > 1 && next.front() == '-' && !is_number && !is_arguments)
        return fail(Errc::invalid_input,
                    "{} needs a value: {} {} (with '=' if it begins with a dash)", found.name,
                    found.name, found.flag->metavar);
    if (next.empty() && !may_be_empty)
        return fail(Errc::invalid_input, "{}: the value is empty", found.name);
    ++at_;
    return next;
}

}  // namespace dtrun::cli
