#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

namespace dtrun {

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> pieces;
    for (;;) {
        const std::size_t end = text.find(separator);
        pieces.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return pieces;
        text.remove_prefix(end + 1);
    }
}

std::string_view trim(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n\v\f";
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::optional<long long> to_int(std::string_view text, long long min, long long max) {
    long long value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return {};
    if (value < min || value > max) return {};
    return value;
}

std::string join_names(const std::vector<std::string>& names, std::size_t max) {
    std::string text;
    const std::size_t shown = names.size() > max ? max - 1 : names.size();
    for (std::size_t i = 0; i < shown; ++i) {
        const bool last = i + 1 == names.size();
        text += (i == 0 ? "" : last ? " and " : ", ") + names[i];
    }
    if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
    return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() +
                                 1);  // of a's first i letters, against all beginnings of b
    std::iota(row.begin(), row.end(), 0);
    std::vector<std::size_t> above, above_that;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        above_that = std::exchange(above, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], above_that[j - 2] + 1);
        }
    }
    return row[b.size()];
}

std::optional<std::vector<std::string>> shell_words(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    bool in_word = false;
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quote == '\'') {
            if (c == '\'')
                quote = 0;
            else
                word += c;
        } else if (c == '\\' && i + 1 < text.size()) {
            const char next = text[++i];
            const bool escapes =
                quote == 0 || std::string_view("\"\\$`").find(next) != std::string_view::npos;
            if (!escapes) word += '\\';
            word += next;
            in_word = true;
        } else if (quote == '"') {
            if (c == '"')
                quote = 0;
            else
                word += c;
        } else if (c == '\'' || c == '"') {
            quote = c;
            in_word = true;
        } else if (c == ' ' || c == '\t' || c == '\n') {
            if (in_word) words.push_back(std::exchange(word, {}));
            in_word = false;
        } else {
            word += c;
            in_word = true;
        }
    }
    if (quote != 0) return {};
    if (in_word) words.push_back(std::move(word));
    return words;
}

std::string shell_quote(std::string_view text) {
    constexpr std::string_view plain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
    if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos)
        return std::string(text);
    std::string quoted = "'";
    for (const char c : text) {
        if (c == '\'')
            quoted += "'\\''";
        else
            quoted += c;
    }
    return quoted + "'";
}

std::string escaped(std::string_view text, std::size_t bytes_max) {
    std::string shown;
    for (const char c : text.substr(0, bytes_max)) {
        if (c < ' ' || c > '~')
            shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            shown += c;
    }
    return text.size() > bytes_max ? shown + "..." : shown;
}

}  // namespace dtrun
