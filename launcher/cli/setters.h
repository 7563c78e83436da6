#pragma once
// What tables of flags do with a value, where that is the same for the words of any command.

#include "base/strings.h"
#include "launcher/cli/flags.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::cli {

/// The member of parsed arguments that `Member` points to: of the command's own words (`own`), of the words
/// by which these name a daemon (`own.daemon`), or of the job's options.
template <auto Member>
auto& member_of(auto& parsed) {
    if constexpr (requires { parsed.own.*Member; })
        return parsed.own.*Member;
    else if constexpr (requires { parsed.own.daemon.*Member; })
        return parsed.own.daemon.*Member;
    else if constexpr (requires { parsed.elastic.*Member; })
        return parsed.elastic.*Member;
    else
        return parsed.options.*Member;
}

/// A word of a list, "one of a, b and c" in the message.
template <class T>
Result<T> choose(std::string_view value,
                 std::initializer_list<std::pair<std::string_view, T>> choices) {
    std::vector<std::string> names;
    for (const auto& [name, choice] : choices) {
        if (value == name) return choice;
        names.emplace_back(name);
    }
    return fail(Errc::invalid_input, "'{}' is not one of {}", value, join_names(names));
}

/// Keeps what was made of a value, or says why nothing can be made of it.
template <class T>
Result<void> keep(Result<T> made, auto&& target) {
    if (!made) return std::unexpected(std::move(made.error()));
    target = *std::move(made);
    return {};
}

template <auto Member>
inline constexpr auto set_text = [](auto& parsed, std::string_view value) -> Result<void> {
    member_of<Member>(parsed) = value;
    return {};
};

/// Keeps every value.
template <auto Member>
inline constexpr auto add_text = [](auto& parsed, std::string_view value) -> Result<void> {
    member_of<Member>(parsed).emplace_back(value);
    return {};
};

template <auto Member, auto Value>
inline constexpr auto set_to = [](auto& parsed, std::string_view) -> Result<void> {
    member_of<Member>(parsed) = Value;
    return {};
};

template <auto Member>
inline constexpr auto set_true = set_to<Member, true>;

template <auto Member, int Min, int Max>
inline constexpr auto set_number = [](auto& parsed, std::string_view value) -> Result<void> {
    return keep(whole_number(value, Min, Max), member_of<Member>(parsed));
};

/// At least MinMs milliseconds, written in seconds.
template <auto Member, int MinMs = 1>
inline constexpr auto set_seconds = [](auto& parsed, std::string_view value) -> Result<void> {
    return keep(parse_seconds(value, std::chrono::milliseconds(MinMs), kTimeoutMax),
                member_of<Member>(parsed));
};

/// The flag is accepted, without effect.
inline Result<void> nothing(ParsedArgs&, std::string_view) {
    return {};
}

template <Ask Asked>
Result<void> ask(ParsedArgs& parsed, std::string_view) {
    parsed.asked = Asked;
    return {};
}

inline constexpr int kPortMax = 65'535;
inline constexpr int kRestartsMax = 1'000;

/// --help and --version, for commands that take no flags of `dtrun run`.
template <class D>
Rows<D> about_rows() {
    return {
        {{.names = "--help -h", .group = FlagGroup::other, .help = "this text"}, ask<Ask::help>},
        {{.names = "--version", .group = FlagGroup::other, .help = "the version"},
         ask<Ask::version>}};
}

}  // namespace dtrun::cli
