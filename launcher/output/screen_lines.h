#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrun::output {

/// Whose lines a terminal has shown last, as many as surely are still on its screen when a report follows.
class ScreenLines {
public:
    static constexpr std::size_t kLines = 16;

    void add(std::uint32_t stream, std::string_view bytes) {
        std::size_t lines = 0;
        for (std::size_t at = bytes.rfind('\n'); at != std::string_view::npos && lines < kLines;
             at = at == 0 ? std::string_view::npos : bytes.rfind('\n', at - 1))
            ++lines;
        for (; lines > 0; --lines) streams_[count_++ % kLines] = stream;
    }

    /// How many of the last lines are of this stream.
    std::size_t of(std::uint32_t stream) const {
        std::size_t lines = 0;
        for (std::size_t i = 0; i < kLines && i < count_; ++i)
            if (streams_[i] == stream) ++lines;
        return lines;
    }

private:
    std::array<std::uint32_t, kLines> streams_{};
    std::size_t count_ = 0;
};

}  // namespace dtrun::output
