#include "worker/client/nodelist.h"

#include "base/strings.h"

namespace dtrun::embedded {
namespace {

constexpr std::size_t kNodesMax = 65'536;
constexpr long long kNumberMax = 999'999'999'999;

using Names = std::vector<std::string>;

/// The numbers of "01-03,7", as text; empty if it is malformed or there are too many.
Names expand_ranges(std::string_view text) {
    Names numbers;
    for (const std::string_view range : split(text, ',')) {
        const std::size_t dash = range.find('-');
        const std::string_view low_text = range.substr(0, dash);
        const auto low = to_int(low_text, 0, kNumberMax);
        const auto high = dash == range.npos ? low : to_int(range.substr(dash + 1), 0, kNumberMax);
        if (!low || !high || *high < *low) return {};
        if (*high - *low >= static_cast<long long>(kNodesMax - numbers.size())) return {};
        for (long long number = *low; number <= *high; ++number)
            numbers.push_back(fmt::format("{:0{}}", number, low_text.size()));
    }
    return numbers;
}

/// One item of the list; empty if it is malformed or has too many names.
Names expand_item(std::string_view item) {
    Names names{""};
    while (!item.empty()) {
        const std::size_t open = item.find('[');
        const std::string_view literal = item.substr(0, open);
        if (literal.find(']') != literal.npos) return {};
        for (std::string& name : names) name += literal;
        if (open == item.npos) break;
        const std::size_t close = item.find(']', open);
        if (close == item.npos) return {};
        const Names numbers = expand_ranges(item.substr(open + 1, close - open - 1));
        if (numbers.empty() || numbers.size() > kNodesMax / names.size()) return {};
        Names longer;
        for (const std::string& name : names)
            for (const std::string& number : numbers) longer.push_back(name + number);
        names = std::move(longer);
        item.remove_prefix(close + 1);
    }
    return names.front().empty() ? Names() : names;
}

/// Where the item in front of `text` ends: at a comma that is not in brackets.
std::size_t item_end(std::string_view text) {
    bool in_brackets = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '[') in_brackets = true;
        if (text[i] == ']') in_brackets = false;
        if (text[i] == ',' && !in_brackets) return i;
    }
    return text.size();
}

}  // namespace

Outcome<std::vector<std::string>> expand_nodelist(std::string_view text) {
    Names names;
    for (std::string_view rest = text;;) {
        const std::size_t end = item_end(rest);
        Names item = expand_item(rest.substr(0, end));
        if (item.empty() || item.size() > kNodesMax - names.size())
            return failure(DTRUN_INVALID, "'{}' is not a list of at most {} nodes", text,
                           kNodesMax);
        names.insert(names.end(), std::make_move_iterator(item.begin()),
                     std::make_move_iterator(item.end()));
        if (end == rest.size()) return names;
        rest.remove_prefix(end + 1);
    }
}

}  // namespace dtrun::embedded
