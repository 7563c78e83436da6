#pragma once

#include <array>
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
    static constexpr std::size_t kLinesMax = 10;
    static constexpr std::size_t kLineBytesMax = 4096;  ///< what follows is dropped

    void add(std::string_view bytes);

    /// Oldest first, an unfinished line last; at most kLinesMax.
    std::vector<std::string> lines() const;

private:
    void extend(std::string_view text);

    std::array<std::string, kLinesMax> lines_;
    std::size_t count_ = 0;  // ever finished; the newest is at (count_ - 1) % kLinesMax
    std::string unfinished_;
    bool after_cr_ = false;  // the next byte but '\n' begins the line anew
};

}  // namespace dtrun::output
