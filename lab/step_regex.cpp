#include "lab/step_regex.h"

#include "base/strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::lab {
namespace {

using std::string_view;
using Unit = StepRegex::Unit;

constexpr std::pair<string_view, Unit> kUnits[] = {
    {"seconds", Unit::seconds},
    {"ms", Unit::ms},
    {"us", Unit::us},
    {"steps_per_s", Unit::steps_per_s},
    {"samples_per_s", Unit::samples_per_s},
    {"rank_samples_per_s", Unit::rank_samples_per_s},
    {"steps", Unit::steps},
    {"samples", Unit::samples},
};
constexpr string_view kUnitNames =
    "seconds, ms, us, steps_per_s, samples_per_s, rank_samples_per_s, steps and samples";

/// A longer line is looked at as far as this: the library's expressions take stack for each character.
constexpr std::size_t kLineMax = 4'096;

/// An expression without the names of its groups, which the library does not know, and what they say.
struct Unnamed {
    std::string text;
    std::size_t groups = 0;
    std::size_t named = 0;  ///< the number of the one that has a unit's name; 0: none
    Unit unit = Unit::seconds;
};

/// The name at the begin of what stands behind "(?<" or "(?P<"; nothing: it is none, as in "(?<=".
std::optional<string_view> name_of_group(string_view rest) {
    for (const string_view begin : {"?P<", "?<"}) {
        if (!rest.starts_with(begin)) continue;
        const string_view name = rest.substr(begin.size(), rest.find('>') - begin.size());
        if (!name.empty() && rest.find('>') != string_view::npos && name[0] != '=' &&
            name[0] != '!')
            return rest.substr(0, begin.size() + name.size() + 1);
    }
    return std::nullopt;
}

/// Nothing if a text is not a number from its begin to its end.
std::optional<double> number_in(string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

string_view leading_digits(string_view text) {
    return text.substr(0, text.find_first_not_of("0123456789"));
}

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Whether a line has a word of lower-case letters, in any case, also as a part of another.
bool has_word(string_view line, string_view word) {
    return !std::ranges::search(line, word, {}, lower).empty();
}

/// Whether a word of a line begins so.
bool has_begin(string_view line, string_view begin) {
    for (auto rest = line;;) {
        const auto found = std::ranges::search(rest, begin, {}, lower);
        if (found.empty()) return false;
        const bool is_inside = found.begin() != line.begin() && lower(found.begin()[-1]) >= 'a' &&
                               lower(found.begin()[-1]) <= 'z';
        if (!is_inside) return true;
        rest = {found.begin() + 1, line.end()};
    }
}

/// The accuracy that stands in a line, 0..1.
std::optional<double> accuracy_of(string_view line, const std::csub_match& found) {
    const auto number = number_in(found.str());
    if (!number) return std::nullopt;
    double accuracy = *number;
    const string_view behind =
        trim(line.substr(static_cast<std::size_t>(found.second - line.data())));
    const auto whole = behind.starts_with('/') ? number_in(leading_digits(trim(behind.substr(1))))
                                               : std::optional<double>();
    if (whole)
        accuracy /= *whole;
    else if (behind.starts_with('%') || accuracy > 1)
        accuracy /= 100;
    if (!(accuracy >= 0 && accuracy <= 1)) return std::nullopt;
    return accuracy;
}

Result<void> add_name(Unnamed& found, string_view group) {
    const std::size_t begin = group.find('<') + 1;
    const string_view name = group.substr(begin, group.size() - begin - 1);
    const auto* const unit = std::ranges::find(kUnits, name, &std::pair<string_view, Unit>::first);
    if (unit == std::end(kUnits))
        return fail(Errc::invalid_input, "a group is called '{}': units are {}", name, kUnitNames);
    if (found.named != 0)
        return fail(Errc::invalid_input, "two groups have a unit: which of them has the number?");
    found.named = found.groups;
    found.unit = unit->second;
    return {};
}

Result<Unnamed> without_names(string_view text) {
    Unnamed found;
    bool in_class = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        found.text += c;
        if (c == '\\' && i + 1 < text.size()) {
            found.text += text[++i];
        } else if (c == '[' || c == ']') {
            in_class = c == '[';
        } else if (c == '(' && !in_class) {
            const string_view rest = text.substr(i + 1);
            const auto name = name_of_group(rest);
            if (rest.starts_with('?') && !name) continue;
            ++found.groups;
            if (!name) continue;
            if (auto done = add_name(found, *name); !done) return std::unexpected(done.error());
            i += name->size();
        }
    }
    return found;
}

}  // namespace

struct StepRegex::Compiled {
    std::regex regex;
};

Result<StepRegex> StepRegex::parse(string_view text) {
    const auto plain = without_names(text);
    if (!plain) return std::unexpected(plain.error());
    if (plain->groups == 0)
        return fail(Errc::invalid_input,
                    "'{}' has no group: put the number in parentheses, as in 'step took ([0-9.]+) "
                    "s', with its unit, if that is not seconds, as in '(?<ms>[0-9.]+)'",
                    text);
    if (plain->groups > 1 && plain->named == 0)
        return fail(Errc::invalid_input,
                    "'{}' has {} groups: give the one with the number its unit as a name, as in "
                    "'(?<seconds>[0-9.]+)'",
                    text, plain->groups);
    StepRegex made;
    made.group_ = plain->named == 0 ? 1 : plain->named;
    made.unit_ = plain->unit;
    try {
        made.compiled_ = std::make_shared<const Compiled>(std::regex(plain->text));
    } catch (const std::regex_error& error) {
        return fail(Errc::invalid_input, "'{}' is no regular expression: {}", text, error.what());
    }
    return made;
}

std::span<const StepRegex> StepRegex::usual() {
    static const std::vector<StepRegex> made = [] {
        std::vector<StepRegex> all;
        for (const auto& [sign, text] : {
                 std::pair<string_view, string_view>{
                     "Train Epoch", R"(Train Epoch: *\d+ *\[ *(?<samples>\d+) */)"},
                 {"%|", R"(%\|[^|]*\| *(?<steps>\d+)/\d+ +\[)"},
                 {"] - ", R"((?:^|[^0-9])(?<steps>\d+)/\d+ +\[[=>.]*\] - )"},
                 // Keras 3, with colours
                 {"━", R"((?:^|[^0-9])(?<steps>\d+)/\d+(?:\x1b\[[0-9;]*m| )*━)"},
                 {"Epoch: [", R"(Epoch: \[\d+\] *\[ *(?<steps>\d+)/\d+\])"},
             }) {
            all.push_back(parse(text).value());
            all.back().sign_ = sign;
        }
        return all;
    }();
    return made;
}

std::optional<double> StepRegex::find(string_view line) const {
    line = line.substr(0, kLineMax);
    // The library's expressions are slow, and programs print a lot that is no step.
    if (line.find(sign_) == string_view::npos) return std::nullopt;
    std::cmatch match;
    if (!std::regex_search(line.data(), line.data() + line.size(), match, compiled_->regex))
        return std::nullopt;
    std::string number = match[group_].str();
    std::erase(number, ',');
    const auto value = number_in(number);
    const bool counts = unit_ == Unit::steps || unit_ == Unit::samples;
    if (!value || !(*value > 0 || (counts && *value == 0))) return std::nullopt;
    return value;
}

std::optional<double> bar_position(string_view line) {
    for (const StepRegex& each : StepRegex::usual())
        if (each.unit() == Unit::steps)
            if (const auto position = each.find(line)) return position;
    return std::nullopt;
}

bool speaks_of_test(string_view line) {
    return has_begin(line, "val") || has_begin(line, "test") || has_begin(line, "eval");
}

struct AccuracyRegex::Compiled {
    std::vector<std::regex> each;  ///< the first that is found counts
};

AccuracyRegex AccuracyRegex::of(std::initializer_list<string_view> texts) {
    Compiled compiled;
    for (const string_view text : texts)
        compiled.each.emplace_back(std::string(text), std::regex::ECMAScript | std::regex::icase);
    AccuracyRegex made;
    made.compiled_ = std::make_shared<const Compiled>(std::move(compiled));
    return made;
}

Result<AccuracyRegex> AccuracyRegex::parse(string_view text) {
    try {
        AccuracyRegex made = of({text});
        if (made.compiled_->each.front().mark_count() > 0) return made;
    } catch (const std::regex_error& error) {
        return fail(Errc::invalid_input, "'{}' is no regular expression: {}", text, error.what());
    }
    return fail(Errc::invalid_input,
                "'{}' has no group: put the number in parentheses, as in 'accuracy ([0-9.]+)'",
                text);
}

const AccuracyRegex& AccuracyRegex::usual() {
    static const AccuracyRegex usual = [] {
        AccuracyRegex made = of({
            R"((?:^|[^a-z])(?:e?val|test)[a-z]*[^0-9a-z]{0,3}acc(?:uracy|@1)?(?: is)?[^0-9a-z]{1,12}(?:tensor\()?([0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?))",
            R"((?:^|[^a-z])acc(?:uracy|@1)?(?: is)?[^0-9a-z]{1,12}(?:tensor\()?([0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?))",
            // Not that of one class, as "Accuracy of plane: 60 %".
            R"((?:^|[^a-z])acc(?:uracy)? (?:of|on|for) (?:the|test|val|eval|all|epoch|[0-9])[^:=]{0,80}[:=] *([0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?))",
        });
        made.is_usual_ = true;
        return made;
    }();
    return usual;
}

std::optional<double> AccuracyRegex::find(string_view line) const {
    line = line.substr(0, kLineMax);
    // The library's expressions are slow, and programs print a lot that is no accuracy.
    if (is_usual_ && !has_word(line, "acc")) return std::nullopt;
    const bool is_of_training =
        is_usual_ && (has_word(line, "train") || (bar_position(line) && !speaks_of_test(line)));
    std::cmatch match;
    for (const std::regex& each : compiled_->each) {
        const bool says_test = is_usual_ && &each == &compiled_->each.front();
        if (is_of_training && !says_test) return std::nullopt;
        if (std::regex_search(line.data(), line.data() + line.size(), match, each))
            return accuracy_of(line, match[1]);
    }
    return std::nullopt;
}

}  // namespace dtrun::lab
