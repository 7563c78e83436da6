#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace dtrun {

/// Who waits for what, oldest first, by the key or the prefix of keys that it is.
class WaitLines {
public:
    using Token = std::pair<std::uint64_t, std::uint64_t>;

    void join(const std::string& name, Token token) {
        std::deque<Token>& line = lines_[name];
        if (line.empty()) ++lengths_[name.size()];
        line.push_back(token);
    }
    void leave(const std::string& name, Token token) {
        const auto found = lines_.find(name);
        if (found == lines_.end()) return;
        std::deque<Token>& line = found->second;
        if (const auto at = std::ranges::find(line, token); at != line.end()) line.erase(at);
        if (line.empty()) remove(found);
    }
    /// All who wait for that, who are in no line any more.
    std::deque<Token> take(std::string_view name) {
        const auto found = lines_.find(std::string(name));
        if (found == lines_.end()) return {};
        std::deque<Token> line = std::move(found->second);
        remove(found);
        return line;
    }
    std::optional<Token> first(const std::string& name) const {
        const auto found = lines_.find(name);
        if (found == lines_.end()) return std::nullopt;
        return found->second.front();
    }
    /// How long the names are, and how many there are of each length.
    const std::map<std::size_t, std::size_t>& lengths() const { return lengths_; }

private:
    using Lines = std::unordered_map<std::string, std::deque<Token>>;

    void remove(Lines::iterator line) {
        const auto length = lengths_.find(line->first.size());
        if (--length->second == 0) lengths_.erase(length);
        lines_.erase(line);
    }

    Lines lines_;
    std::map<std::size_t, std::size_t> lengths_;
};

}  // namespace dtrun
