#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace dtrun::output {

/// Whose lines a terminal has shown last, as many as surely are still on its screen when a report follows.
class ScreenLines {
public:
    static constexpr std::size_t kRows = 16;  ///< of a screen

    /// \param streams  all that have printed this, which is shown once; the first may have begun a line before
    /// \param start    what stands before each line
    void add(std::span<const std::size_t> streams, std::string_view bytes, std::string_view start);

    /// How many of the lines in the last rows are of this stream.
    /// \param columns  of the screen, where a longer line goes on in the next row; 0: not known, none does
    std::size_t of(std::size_t stream, std::size_t columns) const;

private:
    struct Line {
        std::size_t columns = 0;
        std::vector<std::size_t> streams{};
    };
    std::array<Line, kRows> lines_{};
    std::size_t count_ = 0;
    std::map<std::size_t, std::size_t>
        begun_;  ///< by stream: columns of a line that has no end yet
};

/// How many columns of a terminal a line needs, or more: what overwrites its begin ('\r') needs none, nor do colours.
std::size_t screen_columns(std::string_view line);

}  // namespace dtrun::output
