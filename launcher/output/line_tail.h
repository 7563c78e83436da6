#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::output {

/// Keeps the last lines of a stream, as a terminal would show them: '\r' begins the line anew.
///
/// Cost: the newest lines of each chunk are copied, the rest is only searched for '\n'.
class LineTail {
public:
    static constexpr std::size_t kLinesMax = 40;        ///< a traceback, and what follows it
    static constexpr std::size_t kLineBytesMax = 1024;  ///< what follows is dropped

    void add(std::string_view bytes);

    /// Oldest first, an unfinished line last; at most kLinesMax.
    std::vector<std::string> lines() const;

private:
    void extend(std::string_view text);

    std::vector<std::string> lines_;  // at most kLinesMax
    std::size_t count_ = 0;           // ever finished; the newest is at (count_ - 1) % kLinesMax
    std::string unfinished_;
    bool after_cr_ = false;  // the next byte but '\n' begins the line anew
};

}  // namespace dtrun::output
