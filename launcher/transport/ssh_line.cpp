#include "launcher/transport/ssh_line.h"

#include "launcher/transport/ssh_patterns.h"

#include <algorithm>
#include <utility>

namespace dtrun::transport {

using std::string_view;

string_view without_blanks(string_view text) {
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSshBlanks)));
    return text;
}

std::optional<std::vector<std::string>> words_of(string_view text) {
    std::vector<std::string> words;
    for (;;) {
        text = without_blanks(text);
        if (text.empty() || text.front() == '#') return words;
        std::string word;
        char quote = 0;
        std::size_t at = 0;
        for (; at < text.size(); ++at) {
            const char c = text[at];
            const char next = at + 1 < text.size() ? text[at + 1] : '\0';
            const bool escapes =
                next == '"' || next == '\'' || next == '\\' || (quote == 0 && next == ' ');
            if (c == '\\' && escapes)
                word += text[++at];
            else if (quote == 0 && kSshBlanks.find(c) != string_view::npos)
                break;
            else if (quote == 0 && (c == '"' || c == '\''))
                quote = c;
            else if (quote != 0 && c == quote)
                quote = 0;
            else
                word += c;
        }
        if (quote != 0) return {};
        text.remove_prefix(at);
        words.push_back(std::move(word));
    }
}

std::string take_keyword(string_view& line) {
    line = without_blanks(line);
    const std::size_t end = std::min(line.size(), line.find_first_of(" \t\r=\""));
    std::string keyword = lower(line.substr(0, end));
    line = without_blanks(line.substr(end));
    if (line.starts_with('=')) line = without_blanks(line.substr(1));
    return keyword;
}

}  // namespace dtrun::transport
