#pragma once
// What text parsers of this folder share, and how messages show words that may be anything.

#include "base/result.h"
#include "base/strings.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// A byte of the user's text, for messages.
struct Position {
    std::string_view what;   ///< a flag or a file name; outlives the position
    std::size_t line = 1;    ///< 1-based
    std::size_t column = 1;  ///< 1-based, in bytes

    Position after(std::size_t bytes) const { return {what, line, column + bytes}; }
};

/// invalid_input "<what>:<line>:<column>: <text>"
template <class... A>
[[nodiscard]] std::unexpected<Error> fail_at(const Position& position,
                                             fmt::format_string<A...> text, A&&... args) {
    return fail(Errc::invalid_input, "{}:{}:{}: {}", position.what, position.line, position.column,
                fmt::format(text, std::forward<A>(args)...));
}

/// The text escaped(), in single quotes. Not called "quoted": argument-dependent look-up would find
/// std's for a std::string.
std::string in_quotes(std::string_view text);

bool is_digit(char c);
bool is_blank(char c);  ///< space, tab, line end

/// Whether a text has the keyboard's characters: no name of a host has others that look like these.
/// Errc: invalid_input, which says what to write
Result<void> check_characters(std::string_view text, const Position& position);

/// A part of a longer text.
struct Token {
    std::string_view text;
    std::size_t offset = 0;  ///< of its first byte in the longer text
};

/// The tokens between separators (any byte of `separators`) that stand outside [brackets], empty
/// ones included; blanks around each token are left out.
std::vector<Token> split_outside_brackets(std::string_view text, std::string_view separators);

/// Number of slots. \param example  what the message tells to write, such as "host:4"
Result<int> parse_slots(std::string_view text, const Position& position, std::string_view example);

/// "; did you mean 'slots'?" for the nearest candidate, or "" if none is near.
/// \param name_of  from an element of `candidates` to its name
template <class Candidates, class NameOf>
std::string did_you_mean(std::string_view word, const Candidates& candidates, NameOf name_of) {
    const std::size_t near = word.size() / 3 + 1;  // most edits of a misspelled word
    std::size_t best = near + 1;
    std::string_view found;
    for (const auto& candidate : candidates) {
        const std::string_view name = name_of(candidate);
        if (name.size() > word.size() + near || word.size() > name.size() + near) continue;
        const std::size_t distance = edit_distance(word, name);
        if (distance >= best || distance >= name.size()) continue;
        best = distance;
        found = name;
    }
    return found.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(found));
}

}  // namespace dtrun
