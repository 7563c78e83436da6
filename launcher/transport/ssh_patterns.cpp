#include "launcher/transport/ssh_patterns.h"

#include "base/strings.h"

#include <algorithm>
#include <cstddef>

namespace dtrun::transport {

std::string lower(std::string_view text) {
    std::string result(text);
    std::ranges::transform(result, result.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return result;
}

bool matches(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0, star = std::string_view::npos, tried = 0;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            tried = n;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
            ++p, ++n;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            n = ++tried;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

bool matches_any(std::string_view patterns, std::string_view name) {
    bool found = false;
    for (const std::string_view pattern : split(patterns, ',')) {
        const bool negated = pattern.starts_with('!');
        if (!matches(pattern.substr(negated ? 1 : 0), name)) continue;
        if (negated) return false;
        found = true;
    }
    return found;
}

}  // namespace dtrun::transport
