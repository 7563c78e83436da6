#include "hostfiles/scan.h"

#include "base/look_alike.h"
#include "base/strings.h"
#include "hostfiles/host.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun {

std::string in_quotes(std::string_view text) {
    return "'" + escaped(text) + "'";
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

Result<void> check_characters(std::string_view text, const Position& position) {
    const auto found = find_look_alike(text);
    if (!found) return {};
    return fail_at(position.after(found->begin), "{}", look_alike_hint(text));
}

std::vector<Token> split_outside_brackets(std::string_view text, std::string_view separators) {
    std::vector<Token> tokens;
    std::size_t begin = 0;
    bool inside = false;
    const auto add = [&](std::size_t end) {
        const std::string_view token = trim(text.substr(begin, end - begin));
        // An empty piece's offset is where its text is missing.
        const std::size_t offset = token.empty() ? begin : token.data() - text.data();
        tokens.push_back({token, offset});
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '[')
            inside = true;
        else if (text[i] == ']')
            inside = false;
        else if (!inside && separators.find(text[i]) != std::string_view::npos) {
            add(i);
            begin = i + 1;
        }
    }
    add(text.size());
    return tokens;
}

Result<int> parse_slots(std::string_view text, const Position& position, std::string_view example) {
    if (text.empty()) return fail_at(position, "the number of slots is missing; write {}", example);
    if (!std::all_of(text.begin(), text.end(), is_digit))
        return fail_at(position, "{} is not a number of slots; write {}", in_quotes(text), example);
    const auto slots = to_int(text, 0, kSlotsMax);
    if (!slots)
        return fail_at(position, "{} slots are too many; a host has at most {}", in_quotes(text),
                       kSlotsMax);
    return static_cast<int>(*slots);
}

}  // namespace dtrun
