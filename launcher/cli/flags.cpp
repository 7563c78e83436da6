#include "launcher/cli/flags.h"

#include "base/environment.h"
#include "base/look_alike.h"
#include "base/signal_names.h"
#include "base/strings.h"
#include "base/suggest.h"

#include <fmt/format.h>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <csignal>

namespace dtrun::cli {

/// A flag, the name of it that a word means, and the value in the same word.
struct OptionReader::Named {
    std::size_t row = 0;
    std::string_view name;
    std::optional<std::string_view> attached{};
};

namespace {

using std::string_view;

/// A name of a flag, and the index of the flag.
struct NameOfFlag {
    std::size_t row = 0;
    string_view name;
};

constexpr int kDigitsMax = 999'999'999;  // what is taken for a number and not for a name

/// Spells the name of a flag with '-' for '_': launchers differ in this.
std::string with_dashes(string_view name) {
    std::string text(name);
    std::ranges::replace(text, '_', '-');
    return text;
}

std::vector<NameOfFlag> all_names(std::span<const Flag> flags) {
    std::vector<NameOfFlag> names;
    for (std::size_t row = 0; row < flags.size(); ++row)
        for (const string_view list : {flags[row].names, flags[row].also})
            for (const string_view name : split(list, ' '))
                if (!name.empty()) names.push_back({row, name});
    return names;
}

/// Whether with_dashes() makes them equal.
bool is_same_name(string_view one, string_view other) {
    const auto dashed = [](char c) { return c == '_' ? '-' : c; };
    return std::ranges::equal(one, other, {}, dashed, dashed);
}

std::optional<NameOfFlag> flag_named(std::span<const Flag> flags, string_view name) {
    for (const NameOfFlag& candidate : all_names(flags))
        if (is_same_name(candidate.name, name)) return candidate;
    return std::nullopt;
}

/// The names of a flag that may be abbreviated.
string_view abbreviable(const Flag& flag) {
    const bool all = flag.group == FlagGroup::native || flag.group == FlagGroup::horovod;
    return all ? flag.names : flag.argparse;
}

/// The flags that `name` abbreviates, each with the first such name.
std::vector<NameOfFlag> flags_abbreviated(std::span<const Flag> flags, string_view name) {
    const auto is_long = [](string_view text) { return text.starts_with("--"); };
    const std::string start = with_dashes(name);
    std::vector<NameOfFlag> found;
    for (std::size_t row = 0; row < flags.size(); ++row) {
        const auto names = split(abbreviable(flags[row]), ' ');
        const auto match = std::ranges::find_if(names, [&](string_view candidate) {
            return with_dashes(candidate).starts_with(start) && is_long(candidate) == is_long(name);
        });
        if (match != names.end()) found.push_back({row, *match});
    }
    return found;
}

std::unexpected<Error> unknown(std::span<const Flag> flags, string_view name, string_view command) {
    if (const std::string hint = look_alike_hint(name); !hint.empty())
        return fail(Errc::invalid_input, "unknown option {}: {}", name, hint);
    const std::vector<NameOfFlag> names = all_names(flags);
    std::vector<NameOfFlag> begun;  // what an abbreviation could have meant, by its first name
    std::vector<std::string> spelled;
    for (const NameOfFlag& candidate : names) {
        if (!flags[candidate.row].refused.empty()) continue;  // it would be the next error
        spelled.push_back(with_dashes(candidate.name));
        const bool is_known = !begun.empty() && begun.back().row == candidate.row;
        if (name.size() > 3 && spelled.back().starts_with(name) && !is_known)
            begun.push_back(candidate);
    }
    if (begun.size() == 1)
        return fail(Errc::invalid_input, "unknown option {}; did you mean {}?", name,
                    begun.front().name);
    std::string hint = did_you_mean(name, spelled);
    for (const NameOfFlag& candidate : names)
        if (hint.ends_with(" " + with_dashes(candidate.name) + "?"))
            hint.replace(hint.size() - candidate.name.size() - 1, candidate.name.size(),
                         candidate.name);
    if (hint.empty()) hint = fmt::format("; see {} --help", command);
    return fail(Errc::invalid_input, "unknown option {}{}", name, hint);
}

std::unexpected<Error> ambiguous(string_view name, const std::vector<NameOfFlag>& found) {
    std::vector<std::string> names;
    for (const NameOfFlag& candidate : found) names.emplace_back(candidate.name);
    return fail(Errc::invalid_input, "{} is short for {}; write more of it", name,
                join_names(names));
}

/// A long name, whole or abbreviated.
Result<NameOfFlag> find_long(std::span<const Flag> flags, string_view name, string_view command) {
    if (const auto exact = flag_named(flags, name)) return *exact;
    if (name.size() <= 2) return unknown(flags, name, command);
    const auto found = flags_abbreviated(flags, name);
    if (found.empty()) {
        // mpirun has one dash and two for all of its long names.
        const string_view one_dash = name.substr(1);
        const auto exact = one_dash.size() > 2 ? flag_named(flags, one_dash) : std::nullopt;
        if (!exact) return unknown(flags, name, command);
        return *exact;
    }
    if (found.size() > 1) return ambiguous(name, found);
    return found.front();
}

/// A name behind one dash: "-hostfile", or a long one, whole; the start of the first kind.
std::optional<NameOfFlag> find_short(std::span<const Flag> flags, string_view name) {
    for (const std::string& spelled : {std::string(name), "-" + std::string(name)})
        if (const auto exact = flag_named(flags, spelled)) return exact;
    if (name.size() <= 3) return std::nullopt;
    const auto found = flags_abbreviated(flags, name);
    return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

/// "-np4": a name behind one dash with the number that it takes.
std::optional<NameOfFlag> find_with_number(std::span<const Flag> flags, string_view word) {
    const std::size_t digits = word.find_first_of("0123456789");
    if (digits == string_view::npos || digits < 3 || word.starts_with("--")) return std::nullopt;
    const auto named = flag_named(flags, word.substr(0, digits));
    if (!named || flags[named->row].value() != Flag::Value::required) return std::nullopt;
    return to_int(word.substr(digits), 0, kDigitsMax) ? named : std::nullopt;
}

/// A path with the user's home for its "~"; as it is where there is no home, and for "~user".
std::string at_home(std::string path) {
    if (path != "~" && !path.starts_with("~/")) return path;
    for (const std::string& variable : own_environment())
        if (variable.starts_with("HOME=/")) return variable.substr(5) + path.substr(1);
    return path;
}

/// Whether a word is one that the optional value "[=text|json]" or "[=N]" could be.
bool could_be_value(string_view metavar, string_view word) {
    const auto choices = split(metavar.substr(2, metavar.size() - 3), '|');
    if (std::ranges::find(choices, word) != choices.end()) return true;
    return std::ranges::find(choices, "N") != choices.end() && to_int(word, 0, kDigitsMax);
}

}  // namespace

const Flag* find_flag(std::span<const Flag> flags, string_view name) {
    const auto named = flag_named(flags, name);
    return named ? &flags[named->row] : nullptr;
}

bool is_option(string_view word) {
    return word.size() > 1 && word.starts_with('-');
}

std::optional<string_view> behind_long_dash(string_view word) {
    const auto found = find_look_alike(word);
    if (!found || found->begin != 0 || found->plain != '-') return std::nullopt;
    return word.substr(found->size);
}

Result<void> check_dash(string_view word, std::span<const Flag> flags) {
    const auto found = behind_long_dash(word);
    if (!found) return {};
    const std::string name(found->starts_with('-') ? found->substr(1) : *found);
    std::vector<std::string> typed;  // those of the two that there are
    for (const std::string& dashed : {"-" + name, "--" + name})
        if (find_flag(flags, dashed.substr(0, dashed.find('=')))) typed.push_back(dashed);
    if (typed.empty()) typed = {name.size() == 1 ? "-" + name : "--" + name};
    return fail(Errc::invalid_input,
                "'{}' begins with a dash that a web page or a word processor has made long: "
                "write {}",
                word, fmt::join(typed, " or "));
}

Flag::Value Flag::value() const {
    if (metavar.empty()) return Value::none;
    if (metavar.starts_with("[=")) return Value::optional;
    return metavar.starts_with('[') ? Value::choice : Value::required;
}

Result<OptionReader::Named> OptionReader::find(string_view word) const {
    const std::size_t equals = word.find('=');
    std::optional<string_view> attached;
    if (equals != string_view::npos) attached = word.substr(equals + 1);
    const string_view typed = word.substr(0, equals);
    // "-np＝4", which would be -n with a value behind it.
    if (find_look_alike(typed)) {
        const std::string plain = with_plain_characters(word);
        if (flag_named(flags_, string_view(plain).substr(0, plain.find('='))))
            return unknown(flags_, word, command_);
    }
    if (typed.starts_with("--")) {
        const auto found = find_long(flags_, with_dashes(typed), command_);
        if (!found) return std::unexpected(found.error());
        return Named{found->row, found->name, attached};
    }
    if (const auto found = find_short(flags_, typed))
        return Named{found->row, found->name, attached};
    if (const auto found = find_with_number(flags_, word))
        return Named{found->row, found->name, word.substr(word.find_first_of("0123456789"))};
    // "-Ha:1"
    const auto letter = flag_named(flags_, word.substr(0, 2));
    if (word.size() == 2 || !letter || flags_[letter->row].value() == Flag::Value::none)
        return unknown(flags_, typed, command_);
    // "-npp", which nobody means as a number of ranks, or of a port.
    const string_view metavar = flags_[letter->row].metavar;
    const bool is_misspelt = (metavar == "N" || metavar == "PORT") &&
                             std::isalpha(static_cast<unsigned char>(word[2])) != 0;
    if (is_misspelt) return unknown(flags_, typed, command_);
    return Named{letter->row, letter->name, word.substr(2)};
}

Result<std::optional<FoundFlag>> OptionReader::next() {
    while (at_ < words_.size() && is_option(words_[at_]) && !ended_) {
        const string_view word = words_[at_++];
        if (word == "--") {
            ended_ = true;
            break;
        }
        const auto named = find(word);
        if (!named) return std::unexpected(named.error());
        const Flag& flag = flags_[named->row];
        if (!flag.refused.empty()) return refused(flag, named->name);
        auto value = whole_value_of(*named);
        if (!value) return std::unexpected(value.error());
        // An empty value, as of a script's unset variable, counts as not given.
        if (value->empty() && flag.value() == Flag::Value::required) continue;
        if (flag.is_path()) *value = at_home(std::move(*value));
        return FoundFlag{named->row, named->name, std::move(*value)};
    }
    if (at_ < words_.size() && !ended_)
        if (const auto plain = check_dash(words_[at_], flags_); !plain)
            return std::unexpected(plain.error());
    return std::nullopt;
}

std::unexpected<Error> OptionReader::refused(const Flag& flag, string_view name) const {
    if (!flag.front.empty())
        return fail(Errc::invalid_input, "{} is {}'s: write dtrun {} ...; {}", name, flag.front,
                    flag.front, flag.refused);
    return fail(Errc::invalid_input, "{} is {}: {}", name,
                flag.group == FlagGroup::foreign ? "no flag of dtrun" : "refused", flag.refused);
}

/// The next word if it is one that the flag takes.
Result<string_view> OptionReader::chosen_word(const Named& named) {
    if (at_ == words_.size()) return string_view{};
    const string_view metavar = flags_[named.row].metavar;
    const auto choices = split(metavar.substr(1, metavar.size() - 2), '|');
    const string_view next = words_[at_];
    if (std::ranges::find(choices, next) != choices.end()) return words_[at_++];
    if (next.find('/') != string_view::npos) return string_view{};
    const std::vector<std::string> names(choices.begin(), choices.end());
    if (const std::string hint = did_you_mean(next, names); !hint.empty())
        return fail(Errc::invalid_input, "{}: '{}' is not one of {}{} (-- before a program)",
                    named.name, next, join_names(names), hint);
    return string_view{};
}

/// A value of two words is returned with a blank between them, or as it is written if a '=' is before or
/// in it: -genv NAME VALUE or NAME=VALUE. The second may be anything: -mca plm_rsh_args "-p 22".
Result<std::string> OptionReader::whole_value_of(const Named& named) {
    const auto first = value_of(named);
    if (!first) return std::unexpected(first.error());
    std::string value(*first);
    const string_view metavar = flags_[named.row].metavar;
    const bool is_whole = metavar.find(' ') == string_view::npos || value.find('=') != value.npos;
    if (named.attached || is_whole) return value;
    if (at_ == words_.size())
        return fail(Errc::invalid_input, "{} needs two words: {} {}", named.name, named.name,
                    metavar);
    return value.append(" ").append(words_[at_++]);
}

Result<string_view> OptionReader::value_of(const Named& named) {
    const Flag& flag = flags_[named.row];
    const Flag::Value kind = flag.value();
    const bool may_be_empty = flag.group == FlagGroup::native;
    if (named.attached) {
        if (kind == Flag::Value::none)
            return fail(Errc::invalid_input, "{} takes no value", named.name);
        if (named.attached->empty() && !may_be_empty)
            return fail(Errc::invalid_input, "{}: the value is empty", named.name);
        return *named.attached;
    }
    if (kind == Flag::Value::choice) return chosen_word(named);
    if (kind == Flag::Value::optional && at_ < words_.size() &&
        could_be_value(flag.metavar, words_[at_]))
        return fail(Errc::invalid_input, "{}: write {}={} (or -- before a program of that name)",
                    named.name, named.name, words_[at_]);
    if (kind != Flag::Value::required) return string_view{};
    if (at_ == words_.size())
        return fail(Errc::invalid_input, "{} needs a value: {} {}", named.name, named.name,
                    flag.metavar);
    const string_view next = words_[at_];
    const bool is_number =
        next.size() > 1 && (next[1] == '.' || (next[1] >= '0' && next[1] <= '9'));
    const bool is_arguments = flag.is_arguments && next.find(' ') != string_view::npos;
    if (is_option(next) && !is_number && !is_arguments)
        return fail(Errc::invalid_input,
                    "{} needs a value: {} {} (with '=' if it begins with a dash)", named.name,
                    named.name, flag.metavar);
    if (next.empty() && !may_be_empty)
        return fail(Errc::invalid_input, "{}: the value is empty", named.name);
    ++at_;
    return next;
}

namespace {

/// Whether a launcher that parses its words by argparse has both names, and so takes the last value.
bool are_of_argparse(const Flag& flag, string_view one, string_view other) {
    const auto names = split(abbreviable(flag), ' ');
    return std::ranges::find(names, one) != names.end() &&
           std::ranges::find(names, other) != names.end();
}

/// A flag of which two names are given that disagree: who has written one of them did not know of the other, or
/// means something else by it, as srun does. Scripts that a launcher takes as they are go on.
Result<void> check_twice(const Flag& flag, const GivenFlag& one, const GivenFlag& other,
                         std::vector<std::string>& warnings) {
    const bool disagree = one.row == other.row &&
                          with_dashes(one.name) != with_dashes(other.name) &&
                          one.value != other.value;
    if (!disagree || flag.adds_up || flag.value() != Flag::Value::required) return {};
    if (are_of_argparse(flag, one.name, other.name)) {
        warnings.push_back(
            fmt::format("{} {} and {} {} are one option, of which the last value counts", one.name,
                        one.value, other.name, other.value));
        return {};
    }
    return fail(Errc::invalid_input, "{} {} and {} {} are one option of dtrun; give it once{}{}",
                one.name, one.value, other.name, other.value, flag.twice.empty() ? "" : ": ",
                flag.twice);
}

}  // namespace

std::string shown_value(const Flag& flag, string_view value) {
    const std::size_t end = flag.sets_variable ? value.find_first_of("= ") : string_view::npos;
    if (end == string_view::npos) return std::string(value);
    return std::string(value.substr(0, end)) + "=...";
}

Result<void> check_exclusions(std::span<const Flag> flags, ParsedArgs& parsed) {
    const std::span<const GivenFlag> given = parsed.given;
    for (std::size_t i = 0; i + 1 < given.size(); ++i)
        for (const GivenFlag& later : given.subspan(i + 1))
            if (auto done = check_twice(flags[given[i].row], given[i], later, parsed.warnings);
                !done)
                return done;
    for (const GivenFlag& one : given)
        for (const string_view excluded : split(flags[one.row].excludes, ' '))
            for (const GivenFlag& other : given)
                if (flags[other.row].first_name() == excluded)
                    return fail(Errc::invalid_input,
                                "{} and {} exclude each other; give one of them", other.name,
                                one.name);
    return {};
}

Error not_taken(const Error& why, string_view name, string_view value) {
    const std::string hint = look_alike_hint(value);
    return {why.code, fmt::format("{}: {}{}{}", name, why.message, hint.empty() ? "" : ": ", hint)};
}

Result<int> whole_number(string_view value, int min, int max) {
    const auto number = to_int(value, min, max);
    if (!number)
        return fail(Errc::invalid_input, "'{}' is not a whole number from {} to {}", value, min,
                    max);
    return static_cast<int>(*number);
}

Result<std::uint64_t> parse_bytes(string_view text, std::uint64_t max) {
    string_view digits = text;
    int shift = 0;
    for (const auto& [letter, bits] : {std::pair('K', 10), {'M', 20}, {'G', 30}})
        if (!text.empty() && (text.back() == letter || text.back() == letter + ('a' - 'A'))) {
            digits.remove_suffix(1);
            shift = bits;
        }
    const auto number = to_int(digits, 1, static_cast<long long>(max >> shift));
    if (!number)
        return fail(Errc::invalid_input, "'{}' is not a number of bytes such as 4, 64K or 16M",
                    text);
    return static_cast<std::uint64_t>(*number) << shift;
}

Result<std::chrono::milliseconds> parse_seconds(string_view text, std::chrono::milliseconds min,
                                                std::chrono::milliseconds max) {
    using Seconds = std::chrono::duration<double>;
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    const bool in_range = number >= Seconds(min).count() && number <= Seconds(max).count();
    if (error != std::errc{} || stopped != end || !in_range || text.starts_with('-'))
        return fail(Errc::invalid_input, "'{}' is not a number of seconds from {} to {}", text,
                    Seconds(min).count(), Seconds(max).count());
    return std::chrono::milliseconds(std::llround(number * 1000));
}

Result<std::chrono::milliseconds> parse_time_span(string_view text, std::chrono::milliseconds max) {
    using std::chrono::seconds;
    const char unit = text.empty() ? ' ' : text.back();
    const seconds one = unit == 'h'   ? std::chrono::hours(1)
                        : unit == 'm' ? std::chrono::minutes(1)
                                      : seconds(1);
    const bool has_unit = unit == 'h' || unit == 'm' || unit == 's';
    const string_view number = text.substr(0, text.size() - (has_unit ? 1 : 0));
    const auto count = to_int(number, 1, max / one);
    if (count) return one * *count;
    return fail(Errc::invalid_input, "'{}' is not a time such as 90, 10m or 2h, at most {}h", text,
                std::chrono::duration_cast<std::chrono::hours>(max).count());
}

Result<int> parse_signal(string_view text) {
    const std::string name =
        text.starts_with("SIG") ? std::string(text) : fmt::format("SIG{}", text);
    for (int signal = 1; signal < NSIG; ++signal) {
        if (signal_name(signal) != name && text != std::to_string(signal)) continue;
        if (signal == SIGKILL || signal == SIGSTOP) break;
        return signal;
    }
    return fail(Errc::invalid_input, "'{}' is not a signal that a program can take, such as USR1",
                text);
}

}  // namespace dtrun::cli
